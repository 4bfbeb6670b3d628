"""The size of a model, counted from its configuration before the model is built.

The sizes in a recipe or in a run may be anything. So code that trains a recipe or opens a run calls
``find_memory_fault`` before it builds the model: a width of a million gives a message, and the operating system does
not have to kill the process. A model that training divides among several processes is not checked.
"""

from __future__ import annotations

import torch

from clockhands.machine import format_bytes, measure_free_memory
from clockhands.model.config import TransformerConfig
from clockhands.model.config_fields import Side, StackSide

LAYER_OVERHEAD = 2**17
"""Bytes that the Python objects of one layer take besides its parameters, rounded up."""
TRAINING_COPIES = 4
"""Numbers stored for each parameter in training: itself, its gradient, and Adam's two moments."""
MEMORY_FACTOR = 1.2
"""The memory that a model is assumed to need, divided by that of the numbers stored for its parameters.

These are the parameters, or in training ``TRAINING_COPIES`` numbers for each. A fifth more is for the model's states.
"""


def count_parameters(config: TransformerConfig) -> int:
    """Count the parameters of a model, tied matrices once, without building it.

    Only the schemes are built, to count theirs.
    """
    total = sum(_count_stack(config, side) for side in config.stack_sides)
    total += sum(_count_schemes(config, side) for side in config.sides)
    return total + _count_output(config) - _count_tied_parameters(config)


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


def _count_schemes(config: TransformerConfig, side: Side) -> int:
    """Count the parameters of a side's schemes: one for all layers, or one for each."""
    summary = config.summarise_schemes(side)
    return max(config.count_layers(side), 1) * summary.num_parameters if summary.per_layer else summary.num_parameters


def _count_stack(config: TransformerConfig, side: StackSide) -> int:
    """Count the input layer, the layers and the last norm of the encoder or the decoder, without its schemes."""
    position, width = config.get_position_config(side), config.d_model
    total = config.get_vocabulary_size(side) * position.compute_token_width(width)
    total += config.token_scale == "learned"
    total += (width + position.compute_encoding_width(width)) * width if position.combine == "project" else 0
    total += _count_norm(config) if config.embedding_norm else 0
    return (
        total
        + sum(_count_layer(config, side, layer) for layer in range(config.count_layers(side)))
        + (_count_norm(config) if config.has_final_norm else 0)
    )


def _count_layer(config: TransformerConfig, side: StackSide, layer: int) -> int:
    """Count the attention, the feed-forward network or the experts, and the norms of one layer, counted from 0."""
    norms = _count_norm(config) * (2 if config.norm == "sandwich" else 1)
    total = norms + (_count_attention(config) if config.latent_width is None else _count_latent_attention(config))
    total -= 0 if layer or config.first_norm else _count_norm(config)
    total += _count_attention(config) + norms if config.has_cross_attention(side) else 0
    total += _count_experts(config) if config.has_experts(layer) else _count_feed_forward(config, config.d_ff)
    return total + _count_head_norms(config) + norms


def _count_feed_forward(config: TransformerConfig, width: int) -> int:
    """Count a feed-forward network of this width inside."""
    up = (1 + config.gated) * width
    return config.d_model * (up + width) + config.ffn_bias * (up + config.d_model)


def _count_experts(config: TransformerConfig) -> int:
    """Count the experts of a layer, the network beside them, and their router."""
    expert = _count_feed_forward(config, config.expert_width or config.d_ff)
    shared = _count_feed_forward(config, config.shared_expert_width) if config.shared_expert_width else 0
    return config.experts * (expert + config.d_model + config.ffn_bias) + shared


def _count_latent_attention(config: TransformerConfig) -> int:
    """Count the projections and norms of an attention with compressed keys and values."""
    width, latent, query = config.d_model, config.latent_width or 0, config.latent_query_width
    value_dim, shared = config.value_dim or config.resolved_head_dim, config.shared_key_dim
    down, norms = latent + shared + (query or 0), latent + (query or 0)
    up = config.num_heads * config.resolved_head_dim * (query or width)
    up += latent * config.num_heads * (config.resolved_head_dim - shared + value_dim)
    out = config.num_heads * value_dim * width
    return width * down + norms + up + out + config.attention_bias * (down + width)


def _count_attention(config: TransformerConfig) -> int:
    """Count the projections of one attention; self-attention and cross-attention have equally many parameters."""
    head_dim = config.resolved_head_dim
    q_width = config.num_heads * head_dim
    fused_width = q_width + 2 * config.resolved_num_kv_heads * head_dim
    return config.d_model * (fused_width + q_width) + config.attention_bias * (fused_width + config.d_model)


def _count_head_norms(config: TransformerConfig) -> int:
    """Count the gains of the norms of queries and keys, which self-attention alone has."""
    heads = {"none": 0, "head": 2, "joint": config.num_heads + config.resolved_num_kv_heads}
    return heads[config.query_key_norm] * config.resolved_head_dim


def _count_norm(config: TransformerConfig) -> int:
    """Count the gain of a norm, and its bias if it has one."""
    return config.d_model * (2 if config.norm_kind == "layer" and config.norm_bias else 1)


def _count_output(config: TransformerConfig) -> int:
    """Count the output matrix, its bias, and the layer before it."""
    width = config.d_model
    transform = width * width + width + _count_norm(config) if config.output_transform else 0
    return width * config.vocab_size + config.output_bias * config.vocab_size + transform


def _count_tied_parameters(config: TransformerConfig) -> int:
    """Count the parameters that the other counts contain again because their matrices are tied."""
    if config.tying == "none":
        return 0
    shared = config.architecture == "encoder-decoder" and config.tying == "three-way"
    return (1 + shared) * config.vocab_size * config.d_model
