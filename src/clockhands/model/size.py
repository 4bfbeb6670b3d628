"""The size of a model, counted from its configuration before the model is built.

The sizes in a recipe or in a run may be anything. So code that trains a recipe or opens a run calls
``find_memory_fault`` before it builds the model: a width of a million gives a message, and the operating system does
not have to kill the process. A model that training divides among several processes is not checked.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from clockhands.machine import format_bytes, measure_free_memory
from clockhands.model.block import Block
from clockhands.model.config import TransformerConfig
from clockhands.model.layers import make_norm
from clockhands.model.transformer import OutputLayer

LAYER_OVERHEAD = 2**17
"""Bytes that the Python objects of one layer take besides its parameters, rounded up."""
TRAINING_COPIES = 4
"""Numbers stored for each parameter in training: itself, its gradient, and Adam's two moments."""
MEMORY_FACTOR = 1.2
"""The memory that a model is assumed to need, divided by that of the numbers stored for its parameters.

These are the parameters, or in training ``TRAINING_COPIES`` numbers for each. A fifth more is for the model's states.
"""


def count_parameters(config: TransformerConfig) -> int:
    """Count the parameters of a model, tied matrices once; of it schemes are built, and layers without storage."""
    total = sum(config.summarise_schemes(side).num_parameters for side in config.sides)
    with torch.device("meta"):
        total += _count(OutputLayer(config))
        for side in config.stack_sides:
            position, width = config.get_position_config(side), config.d_model
            total += config.get_vocabulary_size(side) * position.compute_token_width(width)
            total += config.token_scale == "learned"
            if position.combine == "project":
                total += (width + position.compute_encoding_width(width)) * width
            total += _count(make_norm(config)) * (config.embedding_norm + config.has_final_norm)
            # Of layers that are alike one is built.
            layers = range(config.count_layers(side))
            kinds = Counter((layer == 0, config.has_experts(layer)) for layer in layers)
            first_of = {(layer == 0, config.has_experts(layer)): layer for layer in reversed(layers)}
            total += sum(count * _count(Block(config, side, first_of[kind])) for kind, count in kinds.items())
    if config.tying == "none":
        return total
    shared = config.architecture == "encoder-decoder" and config.tying == "three-way"
    return total - (1 + shared) * config.vocab_size * config.d_model


def count_bytes(config: TransformerConfig, *, training: bool = False, bytes_per_parameter: int = 4) -> int:
    """Estimate the bytes that a model needs, besides its data, to be used or (``training``) trained with Adam.

    They follow from its parameters and layers alone, however long the texts are (``MEMORY_FACTOR``).
    ``bytes_per_parameter``: 4 for float32.
    """
    copies = TRAINING_COPIES if training else 1
    layers = sum(config.count_layers(side) for side in config.stack_sides)
    return int(count_parameters(config) * bytes_per_parameter * copies * MEMORY_FACTOR) + layers * LAYER_OVERHEAD


def find_memory_fault(
    config: TransformerConfig,
    *,
    training: bool = False,
    bytes_per_parameter: int = 4,
    device: torch.device | None = None,
    available: int | None = None,
) -> str | None:
    """Return the sentence that says that a model does not fit the memory; None if it fits.

    ``device``: where the model is to be; None: the CPU. ``available``: free bytes there; None: they are measured.
    """
    if available is None:
        available = measure_free_memory(device or torch.device("cpu"))
    needed = count_bytes(config, training=training, bytes_per_parameter=bytes_per_parameter)
    if needed <= available:
        return None
    use = "trained" if training else "used"
    return (
        f"a model of these sizes has {count_parameters(config):,} parameters and needs {format_bytes(needed)} of "
        f"memory to be {use}, and {format_bytes(available)} are free; lower vocab_size, d_model, d_ff or the number of "
        "layers, or take a machine with more memory"
    )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
