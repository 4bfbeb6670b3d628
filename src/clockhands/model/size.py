"""How large a model is, counted from its configuration before anything of it is built.

Everything that builds a model from numbers that somebody else wrote (a recipe, a ``config.json``) asks ``size_fault``
first: a width of ten million or a vocabulary of 10¹¹ is answered in a sentence instead of by the operating system.
"""

from __future__ import annotations

import torch

from clockhands.machine import format_bytes, measure_free_memory
from clockhands.model.config import Side, TransformerConfig

__all__ = ["LAYER_OVERHEAD", "MEMORY_FACTOR", "TRAINING_COPIES", "bytes_needed", "count_parameters", "size_fault"]

LAYER_OVERHEAD = 2**17
"""Bytes that the Python objects of one layer take besides its numbers, rounded up."""
TRAINING_COPIES = 4
"""Numbers kept for each parameter in training: itself, its gradient, and Adam's two moments."""
MEMORY_FACTOR = 1.2
"""Memory needed over that of the parameters, as a factor: the least with which a model can compute anything."""


def count_parameters(config: TransformerConfig) -> int:
    """Count the parameters of a model, tied matrices once, without building it.

    The parameters of schemes come from ``config.outline(side)``.
    """
    total = sum(_count_stack(config, side) for side in config.sides if side != "cross")
    total += sum(_count_schemes(config, side) for side in config.sides)
    return total + _count_output(config) - _count_tied(config)


def bytes_needed(config: TransformerConfig, *, training: bool = False, itemsize: int = 4) -> int:
    """Count the bytes that a model needs at least, to be used or to be trained (with Adam), besides its data.

    ``itemsize``: bytes of one parameter.
    """
    copies = TRAINING_COPIES if training else 1
    layers = sum(config.layers(side) for side in config.sides if side != "cross")
    return int(count_parameters(config) * itemsize * copies * MEMORY_FACTOR) + layers * LAYER_OVERHEAD


def size_fault(
    config: TransformerConfig,
    *,
    training: bool = False,
    itemsize: int = 4,
    device: torch.device | None = None,
    available: int | None = None,
) -> str | None:
    """Say in one sentence that a model does not fit the memory, or return None if it does.

    ``device``: where it is to be (default: the CPU). ``available``: bytes that are free there, by default as measured.
    """
    if available is None:
        available = measure_free_memory(device or torch.device("cpu"))
    needed = bytes_needed(config, training=training, itemsize=itemsize)
    if needed <= available:
        return None
    use = "trained" if training else "used"
    return (
        f"a model of these sizes has {count_parameters(config):,} parameters and needs {format_bytes(needed)} of "
        f"memory to be {use}, and {format_bytes(available)} are free; lower vocab_size, d_model, d_ff or the number of "
        "layers, or take a machine with more memory"
    )


def _count_schemes(config: TransformerConfig, side: Side) -> int:
    """Count the parameters of a side's schemes: one for all layers, or one for each."""
    outline = config.outline(side)
    return max(config.layers(side), 1) * outline.parameters if outline.per_layer else outline.parameters


def _count_stack(config: TransformerConfig, side: Side) -> int:
    """Count the input layer, the layers and the last norm of the encoder or the decoder, without its schemes."""
    position, width = config.position(side), config.d_model
    total = config.vocabulary(side) * position.token_width(width)
    total += config.token_scale == "learned"
    total += (width + position.encoding_width(width)) * width if position.combine == "project" else 0
    total += _count_norm(config) if config.embedding_norm else 0
    return (
        total + config.layers(side) * _count_layer(config, side) + (_count_norm(config) if config.has_final_norm else 0)
    )


def _count_layer(config: TransformerConfig, side: Side) -> int:
    attention = _count_attention(config) + _count_norm(config)
    crosses = config.has_cross_attention(side)
    up = (1 + config.gated) * config.d_ff
    feed_forward = config.d_model * (up + config.d_ff) + config.ffn_bias * (up + config.d_model)
    return (1 + crosses) * attention + feed_forward + _count_norm(config)


def _count_attention(config: TransformerConfig) -> int:
    """Count the projections of one attention, which has as many in cross-attention."""
    inner = config.num_heads * config.d_head
    projected = inner + 2 * config.kv_heads * config.d_head
    return config.d_model * (projected + inner) + config.attention_bias * (projected + config.d_model)


def _count_norm(config: TransformerConfig) -> int:
    return config.d_model * (2 if config.norm_kind == "layer" and config.norm_bias else 1)


def _count_output(config: TransformerConfig) -> int:
    width = config.d_model
    transform = width * width + width + _count_norm(config) if config.output_transform else 0
    return width * config.vocab_size + config.output_bias * config.vocab_size + transform


def _count_tied(config: TransformerConfig) -> int:
    """Count the parameters that were counted more than once because matrices are tied."""
    if config.tying == "none":
        return 0
    shared = config.kind == "encoder-decoder" and config.tying == "three-way"
    return (1 + shared) * config.vocab_size * config.d_model
