"""Translate configurations of decoders of transformers to fields of a ``TransformerConfig`` and back, besides position.

What no field or no key expresses is refused. An architecture is here a ``model_type`` of transformers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.model.config import TransformerConfig

__all__ = ["DECODERS", "check_architecture", "check_fields", "find_obstacles", "make_keys", "read_fields"]

DECODERS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "smollm3": {},
    "cohere2": {"norm_kind": "layer", "norm_bias": False, "parallel": True},
    "qwen3": {"query_key_norm": "head"},
    "stablelm": {"norm_kind": "layer"},
    "llama4_text": {},
    "gemma3_text": {"norm": "sandwich", "query_key_norm": "head", "token_scale": "sqrt"},
    "olmo3": {"norm": "output", "query_key_norm": "joint"},
}
"""The architectures, by ``model_type``, whose layers are ours with these settings, and all others as in Llama."""
REFUSED = {
    "gpt_oss": "its feed-forward layers are mixtures of experts",
    "qwen3_next": "most of its layers are gated delta nets, and its attention has a gate on its output",
    "deepseek_v3": "its keys and values come from a compressed state that has a norm of its own (MLA)",
    "mistral_large4_text": "its keys and values come from a compressed state that has a norm of its own (MLA)",
    "gemma4_text": "its layers have a learned factor on their output, and its values have a norm",
    "modernbert": "the attention of its first layer, and of no other, has no norm before it",
    "mpnet": "it is an encoder, and weights are copied between decoders",
}
"""Architectures whose keys about position are made and whose weights are not copied, each with the reason."""
ACTIVATION_NAMES = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
"""The names of activations in transformers, each with its name here."""
KEYS: dict[str, dict[str, str | None]] = {
    "norm_eps": {"cohere2": "layer_norm_eps", "stablelm": "layer_norm_eps", "": "rms_norm_eps"},
    "activation": {"gemma3_text": "hidden_activation", "": "hidden_act"},
    "d_ff": {"llama4_text": "intermediate_size_mlp", "": "intermediate_size"},
    "attention_bias": {"mistral": None, "stablelm": None, "": "attention_bias"},
    "ffn_bias": {"llama": "mlp_bias", "smollm3": "mlp_bias", "": None},
    "output_scale": {"cohere2": "logit_scale", "": None},
}
"""The keys of settings whose names differ, by architecture ("": all others); None where it has no such key."""
OFF: dict[str, dict[str, Any]] = {
    "llama4_text": {"moe_layers": [], "use_qk_norm": False},
    "gemma3_text": {
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "use_bidirectional_attention": False,
    },
    "stablelm": {"use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False},
}  # fmt: skip
"""Keys for which our layers have no option, and the value with which they do nothing."""
NOT_COMPARED = {
    "encoder_layers", "source_vocab_size", "causal_encoder", "initialisation", "dropout", "dropout_places", "encoder",
    "decoder", "cross",
}  # fmt: skip
"""Fields that a decoder does not have, or that only training reads; ``make_position_keys`` compares position."""


def check_architecture(model_type: str) -> None:
    """Raise UsageError for an architecture whose weights are not copied, with the reason where it is known."""
    if model_type in REFUSED:
        raise UsageError(f"weights of {model_type} are not copied: {REFUSED[model_type]}; {', '.join(DECODERS)} are")
    if model_type not in DECODERS:
        raise UsageError(describe_unknown("decoder", model_type, DECODERS))


def find_obstacles(config: Any) -> Iterator[str]:
    """Yield the settings of a configuration of transformers for which our layers have no option, one clause each."""
    for key, off in OFF.get(config.model_type, {}).items():
        value = getattr(config, key, off)
        if value != off:
            yield f"{key} is {value!r}, for which our layers have no option; only {off!r} is copied"


def _find_key(setting: str, model_type: str) -> str | None:
    """Return the key that an architecture has for one of the settings of ``KEYS``; None if it has none."""
    names = KEYS[setting]
    return names[model_type] if model_type in names else names[""]


def read_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a ``TransformerConfig``, besides position, for a configuration of transformers."""
    model, heads = config.model_type, config.num_attention_heads
    keys = {setting: _find_key(setting, model) for setting in KEYS}
    values = {setting: getattr(config, key) for setting, key in keys.items() if key is not None}
    values["activation"] = ACTIVATION_NAMES.get(values["activation"], values["activation"])
    if model == "gemma3_text":
        values["attention_scale"] = config.query_pre_attn_scalar**-0.5
    return {
        "kind": "decoder", "vocab_size": config.vocab_size, "d_model": config.hidden_size, "num_heads": heads,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "decoder_layers": config.num_hidden_layers, "norm": "pre", "norm_kind": "rms", "token_scale": "one",
        "tying": "target" if config.tie_word_embeddings else "none", "gated": True, "ffn_bias": False,
        "dropout": float(config.attention_dropout), "dropout_places": ("attention",), **DECODERS[model], **values,
    }  # fmt: skip


def make_keys(ours: TransformerConfig, model_type: str) -> dict[str, Any]:
    """Return the keys of a configuration of transformers, besides position; ``check_fields`` says what they lack."""
    names = {own: theirs for theirs, own in ACTIVATION_NAMES.items()}
    keys = {setting: _find_key(setting, model_type) for setting in KEYS}
    values = {**{setting: getattr(ours, setting) for setting in KEYS}, "activation": names[ours.activation]}
    table = {
        "vocab_size": ours.vocab_size, "hidden_size": ours.d_model, "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.resolved_num_kv_heads, "head_dim": ours.resolved_head_dim,
        "tie_word_embeddings": ours.tying != "none", "attention_dropout": ours.get_dropout("attention"),
        **{key: values[setting] for setting, key in keys.items() if key is not None},
    }  # fmt: skip
    if model_type == "gemma3_text":
        scale = ours.attention_scale or ours.resolved_head_dim**-0.5
        table["query_pre_attn_scalar"] = round(scale**-2)  # an integer; ``check_fields`` sees what rounding changes
    if model_type == "stablelm":  # it has no key for the width of a head, which is d_model / num_heads
        del table["head_dim"]
    return {**table, **OFF.get(model_type, {})}


def check_fields(ours: TransformerConfig, theirs: TransformerConfig, model_type: str) -> None:
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
