"""Convert decoders between transformers and this project, with configuration and weights; the logits stay equal.

Architectures are converted whose layers our options express: those of ``huggingface_fields.DECODERS``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from clockhands.errors import ConfigError
from clockhands.model.block import ResidualConnection
from clockhands.model.config import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_config import SPECIAL_TOKEN_IDS, ClockhandsConfig
from clockhands.model.huggingface_fields import (
    DECODERS,
    check_architecture,
    check_fields,
    find_obstacles,
    make_keys,
    read_fields,
)
from clockhands.model.huggingface_position_keys import make_position_keys
from clockhands.model.transformer import Transformer
from clockhands.pretrained.models import build_model
from clockhands.schemes import Composition, RoPE
from clockhands.schemes.convert import convert_rows
from clockhands.schemes.huggingface_position import read_position_table
from clockhands.schemes.rotary.rotation import Layout
from clockhands.shapes import Tensor

__all__ = ["DECODERS", "copy_from_transformers", "copy_to_transformers"]

INTERLEAVED = ("cohere2", "llama4_text")
"""Architectures that pair neighbouring channels; the others pair halves."""


class _ParameterPair(NamedTuple):
    """A parameter of ours, and those of theirs that it consists of, row after row; ``shift`` is added to theirs."""

    own: Tensor
    parts: list[Tensor]
    shift: float = 0.0


@torch.no_grad()
def copy_from_transformers(theirs: PreTrainedModel) -> ClockhandsForCausalLM:
    """Return a decoder of this project with the configuration and weights of one of transformers.

    Both give the same logits. Raises UsageError for an architecture that is none of ``DECODERS``, CheckpointError for
    positions that no scheme expresses, and ConfigError for other settings that no option expresses.
    """
    config: Any = theirs.config
    check_architecture(config.model_type)
    if faults := list(find_obstacles(config)):
        raise ConfigError(faults, f"the configuration of {type(theirs).__name__}")
    position = read_position_table(config.to_dict(), f"the configuration of {type(theirs).__name__}")
    transformer = TransformerConfig.from_dict({**read_fields(config), "decoder": position})
    ids: dict[str, Any] = {name: getattr(config, name, None) for name in SPECIAL_TOKEN_IDS}
    ours: Any = ClockhandsForCausalLM(ClockhandsConfig(transformer=transformer, **ids))
    ours = ours.to(theirs.dtype)
    for pair in _pair_weights(ours.transformer, theirs):
        pair.own.copy_(torch.cat(pair.parts) + pair.shift if pair.shift else torch.cat(pair.parts))
    made: ClockhandsForCausalLM = ours.to(theirs.device).train(theirs.training)
    return made


@torch.no_grad()
def copy_to_transformers(ours: ClockhandsForCausalLM, model_type: str) -> PreTrainedModel:
    """Return a model of transformers with the configuration and weights of a decoder of this project.

    ``model_type``: one of ``DECODERS``. Both give the same logits: rows of queries and keys are permuted where the
    architecture pairs other channels. Raises UsageError for another architecture, and ConfigError with everything
    that it cannot express. How long its texts may be (``max_position_embeddings``) is left at its own default.
    """
    check_architecture(model_type)
    ours_config = ours.config.transformer_config
    position = make_position_keys(
        ours_config.decoder, model_type, ours_config.decoder_layers, ours_config.resolved_head_dim, any_pairing=True
    )
    ids = {name: getattr(ours.config, name) for name in SPECIAL_TOKEN_IDS}
    config = AutoConfig.for_model(**{**make_keys(ours_config, model_type), **position, **ids})
    check_fields(ours_config, TransformerConfig.from_dict(read_fields(config)), model_type)
    theirs: Any = build_model(AutoModelForCausalLM, config, dtype=ours.dtype)
    transformer = copy.deepcopy(ours.transformer)
    _change_pairing(transformer, "interleaved" if model_type in INTERLEAVED else "half")
    if ours_config.parallel:
        _equalise_norms(transformer)
    for pair in _pair_weights(transformer, theirs):
        for source, part in zip(pair.own.split([len(part) for part in pair.parts]), pair.parts, strict=True):
            part.copy_(source - pair.shift if pair.shift else source)
    made: PreTrainedModel = theirs.to(ours.device).train(ours.training)
    return made


def _pair_weights(ours: Transformer, theirs: Any) -> Iterator[_ParameterPair]:
    """Yield each parameter of ours with those of theirs that it is made of."""
    stack: Any = ours.get_stack("decoder")
    # Gemma's norms multiply by 1 + w.
    shift = 1.0 if theirs.config.model_type == "gemma3_text" else 0.0
    yield _ParameterPair(stack.input.tokens.weight, [theirs.model.embed_tokens.weight])
    yield _ParameterPair(ours.output.weight, [theirs.lm_head.weight])
    yield from _pair_modules(stack.norm, theirs.model.norm, shift=shift)
    for block, layer in zip(stack.blocks, theirs.model.layers, strict=True):
        attention, mlp = layer.self_attn, layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp
        yield from _pair_norms(block, layer, ours.config, shift)
        yield from _pair_modules(block.attention.qkv, attention.q_proj, attention.k_proj, attention.v_proj)
        yield from _pair_modules(block.attention.out, attention.o_proj)
        if block.attention.q_norm is not None:
            yield from _pair_modules(block.attention.q_norm, attention.q_norm, shift=shift)
            yield from _pair_modules(block.attention.k_norm, attention.k_norm, shift=shift)
        yield from _pair_modules(block.feed_forward.up, mlp.gate_proj, mlp.up_proj)
        yield from _pair_modules(block.feed_forward.down, mlp.down_proj)


def _pair_norms(block: Any, layer: Any, config: TransformerConfig, shift: float) -> Iterator[_ParameterPair]:
    """Yield the norms of the sublayers: of their inputs, of their outputs, or of both."""
    first: ResidualConnection = block.attention_residual
    second: ResidualConnection = block.feed_forward_residual
    if config.norm != "output":
        # Llama names the norm before the feed-forward layer after the attention that precedes it.
        feed_forward_norm = "pre_feedforward_layernorm" if config.norm == "sandwich" else "post_attention_layernorm"
        yield from _pair_modules(first.norm, layer.input_layernorm, shift=shift)
        yield from _pair_modules(
            second.norm, layer.input_layernorm if config.parallel else getattr(layer, feed_forward_norm), shift=shift
        )
    if first.output_norm is not None:
        yield from _pair_modules(first.output_norm, layer.post_attention_layernorm, shift=shift)
        yield from _pair_modules(second.output_norm, layer.post_feedforward_layernorm, shift=shift)


def _pair_modules(own: Any, *theirs: Any, shift: float = 0.0) -> Iterator[_ParameterPair]:
    """Yield the weight of a module of ours with those of one or several of theirs, and the bias if there is one."""
    yield _ParameterPair(own.weight, [module.weight for module in theirs], shift)
    if getattr(own, "bias", None) is not None:
        yield _ParameterPair(own.bias, [module.bias for module in theirs])


def _change_pairing(transformer: Transformer, to: Layout) -> None:
    """Permute the rows of queries and keys of the layers whose rotation pairs other channels than the layout ``to``."""
    stack: Any = transformer.get_stack("decoder")
    for index, block in enumerate(stack.blocks):
        scheme = stack.schemes.get_scheme(index)
        parts = scheme.parts if isinstance(scheme, Composition) else (scheme,)
        rope = next((part for part in parts if isinstance(part, RoPE)), None)
        if rope is None or rope.layout == to:
            continue
        for rows in _list_rotated_rows(block.attention):
            rows.copy_(convert_rows(rows, len(rows) // block.attention.head_dim, to, rope.channels))


def _list_rotated_rows(attention: Any) -> Iterator[Tensor]:
    """Yield the rows of the weights and biases of queries and keys, and the gains of their norms."""
    for tensor in (attention.qkv.weight, attention.qkv.bias):
        if tensor is not None:
            yield from tensor.split_with_sizes(attention.qkv.widths)[:2]
    if attention.q_norm is not None:
        yield from (attention.q_norm.weight, attention.k_norm.weight)


def _equalise_norms(transformer: Transformer) -> None:
    """Make the two norms of each layer equal, as a layer of Cohere's has only one.

    Where their weights differ, each is multiplied into the matrix that follows its norm, and both become 1.
    """
    stack: Any = transformer.get_stack("decoder")
    for block in stack.blocks:
        first, second = block.attention_residual.norm, block.feed_forward_residual.norm
        if not torch.equal(first.weight, second.weight):
            for norm, projection in ((first, block.attention.qkv), (second, block.feed_forward.up)):
                projection.weight.mul_(norm.weight)
                nn.init.ones_(norm.weight)
