"""Convert decoders between transformers and this project, with configuration and weights; the logits stay equal.

Architectures are converted whose layers our options express: pre-norm, gated, and without norms of queries and keys.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.model.config import TransformerConfig
from clockhands.model.huggingface import ClockhandsForCausalLM
from clockhands.model.huggingface_config import SPECIAL_TOKEN_IDS, ClockhandsConfig
from clockhands.model.huggingface_position_keys import make_position_keys
from clockhands.model.transformer import Transformer
from clockhands.pretrained.models import build_model
from clockhands.schemes import Composition, RoPE
from clockhands.schemes.convert import convert_rows
from clockhands.schemes.huggingface_position import read_position_table
from clockhands.schemes.rotary.rotation import Layout
from clockhands.shapes import Tensor

__all__ = ["DECODERS", "copy_from_transformers", "copy_to_transformers"]

DECODERS = ("llama", "mistral", "smollm3", "cohere2")
"""The architectures, by ``model_type``, between which and ours weights are copied."""
ACTIVATION_NAMES = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
"""The names of activations in transformers, each with its name here."""
NOT_COMPARED = {
    "encoder_layers", "source_vocab_size", "causal_encoder", "initialisation", "dropout", "dropout_places", "encoder",
    "decoder", "cross",
}  # fmt: skip
"""Fields that a decoder does not have or only training reads; position is compared by ``make_position_keys``."""


@torch.no_grad()
def copy_from_transformers(theirs: PreTrainedModel) -> ClockhandsForCausalLM:
    """Return a decoder of this project with the configuration and weights of one of transformers.

    Both give the same logits. Raises UsageError for an architecture that is none of ``DECODERS``, CheckpointError for
    positions that no scheme expresses, and ConfigError for other settings that no option expresses.
    """
    config: Any = theirs.config
    _check_architecture(config.model_type)
    position = read_position_table(config.to_dict(), f"the configuration of {type(theirs).__name__}")
    transformer = TransformerConfig.from_dict({**_read_fields(config), "decoder": position})
    ids: dict[str, Any] = {name: getattr(config, name, None) for name in SPECIAL_TOKEN_IDS}
    ours: Any = ClockhandsForCausalLM(ClockhandsConfig(transformer=transformer, **ids))
    ours = ours.to(theirs.dtype)
    for own, parts in _pair_weights(ours.transformer, theirs):
        own.copy_(torch.cat(parts))
    made: ClockhandsForCausalLM = ours.to(theirs.device).train(theirs.training)
    return made


@torch.no_grad()
def copy_to_transformers(ours: ClockhandsForCausalLM, model_type: str) -> PreTrainedModel:
    """Return a model of transformers with the configuration and weights of a decoder of this project.

    ``model_type``: one of ``DECODERS``. Both give the same logits: rows of queries and keys are permuted where the
    architecture pairs other channels. Raises UsageError for another architecture, and ConfigError with everything
    that it cannot express. How long its texts may be (``max_position_embeddings``) is left at its own default.
    """
    _check_architecture(model_type)
    ours_config = ours.config.transformer_config
    position = make_position_keys(
        ours_config.decoder, model_type, ours_config.decoder_layers, ours_config.resolved_head_dim, any_pairing=True
    )
    ids = {name: getattr(ours.config, name) for name in SPECIAL_TOKEN_IDS}
    config = AutoConfig.for_model(**{**_make_keys(ours_config, model_type), **position, **ids})
    _check_fields(ours_config, TransformerConfig.from_dict(_read_fields(config)), model_type)
    theirs: Any = build_model(AutoModelForCausalLM, config, dtype=ours.dtype)
    transformer = copy.deepcopy(ours.transformer)
    _change_pairing(transformer, "interleaved" if model_type == "cohere2" else "half")
    if ours_config.parallel:
        _equalise_norms(transformer)
    for own, parts in _pair_weights(transformer, theirs):
        for source, part in zip(own.split([len(part) for part in parts]), parts, strict=True):
            part.copy_(source)
    made: PreTrainedModel = theirs.to(ours.device).train(ours.training)
    return made


def _check_architecture(model_type: str) -> None:
    """Raise UsageError for an architecture that is none of ``DECODERS``."""
    if model_type not in DECODERS:
        raise UsageError(describe_unknown("decoder", model_type, DECODERS))


def _read_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a ``TransformerConfig``, besides position, for a configuration of transformers."""
    cohere = config.model_type == "cohere2"
    heads = config.num_attention_heads
    table = {
        "kind": "decoder", "vocab_size": config.vocab_size, "d_model": config.hidden_size, "num_heads": heads,
        "num_kv_heads": config.num_key_value_heads, "d_ff": config.intermediate_size,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "decoder_layers": config.num_hidden_layers, "norm": "pre", "norm_kind": "layer" if cohere else "rms",
        "norm_bias": not cohere, "norm_eps": config.layer_norm_eps if cohere else config.rms_norm_eps,
        "token_scale": "one", "tying": "target" if config.tie_word_embeddings else "none", "gated": True,
        "attention_bias": getattr(config, "attention_bias", False), "ffn_bias": getattr(config, "mlp_bias", False),
        "activation": ACTIVATION_NAMES.get(config.hidden_act, config.hidden_act), "parallel": cohere,
        "dropout": float(config.attention_dropout), "dropout_places": ("attention",),
    }  # fmt: skip
    return {**table, "output_scale": config.logit_scale} if cohere else table


def _make_keys(ours: TransformerConfig, model_type: str) -> dict[str, Any]:
    """Return the keys of a configuration of transformers, besides position; ``_check_fields`` says what they lack."""
    names = {own: theirs for theirs, own in ACTIVATION_NAMES.items()}
    eps = "layer_norm_eps" if model_type == "cohere2" else "rms_norm_eps"
    table = {
        "vocab_size": ours.vocab_size, "hidden_size": ours.d_model, "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.resolved_num_kv_heads, "head_dim": ours.resolved_head_dim,
        "intermediate_size": ours.d_ff, eps: ours.norm_eps, "tie_word_embeddings": ours.tying != "none",
        "hidden_act": names[ours.activation], "attention_dropout": ours.get_dropout("attention"),
    }  # fmt: skip
    if model_type != "mistral":
        table["attention_bias"] = ours.attention_bias
    if model_type in ("llama", "smollm3"):
        table["mlp_bias"] = ours.ffn_bias
    return {**table, "logit_scale": ours.output_scale} if model_type == "cohere2" else table


def _check_fields(ours: TransformerConfig, theirs: TransformerConfig, model_type: str) -> None:
    """Raise ConfigError with every field that was lost; ``theirs`` is what the keys made from ``ours`` are read as."""
    pairs = {
        field.name: tuple(_resolve(config, field.name) for config in (ours, theirs))
        for field in dataclasses.fields(TransformerConfig)
        if field.name not in NOT_COMPARED
    }
    faults = [
        f"{name} is {own!r}, and {model_type} has {other!r}" for name, (own, other) in pairs.items() if own != other
    ]
    if faults:
        raise ConfigError(faults, "the model")


def _resolve(config: TransformerConfig, name: str) -> Any:
    """Return the value of a field as a decoder computes with it."""
    resolved = {
        "num_kv_heads": config.resolved_num_kv_heads, "head_dim": config.resolved_head_dim,
        "final_norm": config.has_final_norm, "tying": config.tying != "none",
        "norm_bias": config.norm_bias and config.norm_kind == "layer",
        "attention_scale": config.attention_scale or config.resolved_head_dim**-0.5,
    }  # fmt: skip
    return resolved.get(name, getattr(config, name))


def _pair_weights(ours: Transformer, theirs: Any) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield each parameter of ours with those of theirs that it is made of, row after row."""
    stack: Any = ours.get_stack("decoder")
    yield stack.input.tokens.weight, [theirs.model.embed_tokens.weight]
    yield ours.output.weight, [theirs.lm_head.weight]
    yield from _pair_modules(stack.norm, theirs.model.norm)
    for block, layer in zip(stack.blocks, theirs.model.layers, strict=True):
        own = layer.self_attn
        yield from _pair_modules(block.attention_residual.norm, layer.input_layernorm)
        second = layer.input_layernorm if ours.config.parallel else layer.post_attention_layernorm
        yield from _pair_modules(block.feed_forward_residual.norm, second)
        yield from _pair_modules(block.attention.qkv, own.q_proj, own.k_proj, own.v_proj)
        yield from _pair_modules(block.attention.out, own.o_proj)
        yield from _pair_modules(block.feed_forward.up, layer.mlp.gate_proj, layer.mlp.up_proj)
        yield from _pair_modules(block.feed_forward.down, layer.mlp.down_proj)


def _pair_modules(own: Any, *theirs: Any) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield the weight of a module of ours with those of one or several of theirs, and the bias if there is one."""
    yield own.weight, [module.weight for module in theirs]
    if getattr(own, "bias", None) is not None:
        yield own.bias, [module.bias for module in theirs]


def _change_pairing(transformer: Transformer, to: Layout) -> None:
    """Permute the rows of queries and keys of the layers whose rotation pairs other channels than the layout ``to``."""
    stack: Any = transformer.get_stack("decoder")
    for index, block in enumerate(stack.blocks):
        scheme = stack.schemes.get_scheme(index)
        parts = scheme.parts if isinstance(scheme, Composition) else (scheme,)
        rope = next((part for part in parts if isinstance(part, RoPE)), None)
        if rope is None or rope.layout == to:
            continue
        for tensor in (block.attention.qkv.weight, block.attention.qkv.bias):
            if tensor is None:
                continue
            q, k, _ = tensor.split_with_sizes(block.attention.qkv.widths)
            q.copy_(convert_rows(q, transformer.config.num_heads, to, rope.channels))
            k.copy_(convert_rows(k, transformer.config.resolved_num_kv_heads, to, rope.channels))


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
