"""Translate configurations of transformers to fields of a ``TransformerConfig`` and back, besides position.

What no field or no key expresses is refused. An architecture is here a ``model_type`` of transformers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from clockhands.errors import ConfigError, UsageError, describe_unknown
from clockhands.model.config import TransformerConfig

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
    "gpt_oss": {"activation": "clamped-silu", "ffn_bias": True},
    "deepseek_v3": {},
}
"""The decoders, by ``model_type``, with the settings in which their layers differ from Llama's.

What a configuration says itself is read from it: latent attention and experts by ``read_layer_fields``, the other
settings by ``read_fields``.
"""
ENCODERS: dict[str, dict[str, Any]] = {
    "modernbert": {
        "norm_kind": "layer", "first_norm": False, "embedding_norm": True, "output_transform": True,
    },
    "mpnet": {
        "norm": "post", "norm_kind": "layer", "embedding_norm": True, "gated": False, "attention_bias": True,
        "ffn_bias": True, "output_bias": True, "output_transform": True,
    },
}  # fmt: skip
"""The encoders, by ``model_type``, with the settings in which their layers differ from Llama's."""
READ_ONLY: dict[str, dict[str, Any]] = {
    "gpt2": {"norm_kind": "layer", "gated": False, "attention_bias": True, "ffn_bias": True},
}
"""The decoders that are read and not written, with the same settings."""
REFUSED = {
    "qwen3_next": "most of its layers are gated delta nets, which are no softmax attention",
    "mistral_large4_text": "a learned indexer chooses the keys that its attention reads",
    "gemma4_text": "its layers have a learned factor on their output, and its values have a norm",
}
"""Architectures whose keys about position are made and whose weights are not copied, each with the reason."""
ACTIVATION_NAMES = {
    "swish": "silu", "silu": "silu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu", "linear": "identity",
}  # fmt: skip
"""The names of activations in transformers, each with its name here; of two names the last is written."""
KEYS: dict[str, dict[str, str | None]] = {
    "norm_eps": {
        "gpt2": "layer_norm_epsilon",
        "cohere2": "layer_norm_eps", "stablelm": "layer_norm_eps", "mpnet": "layer_norm_eps", "modernbert": "norm_eps",
        "": "rms_norm_eps",
    },
    "activation": {"gemma3_text": "hidden_activation", "modernbert": "hidden_activation", "gpt_oss": None,
                   "gpt2": "activation_function", "": "hidden_act"},
    "d_ff": {"gpt2": "n_inner", "llama4_text": "intermediate_size_mlp", "": "intermediate_size"},
    "attention_bias": {"gpt2": None, "mistral": None, "stablelm": None, "mpnet": None, "": "attention_bias"},
    "ffn_bias": {"llama": "mlp_bias", "smollm3": "mlp_bias", "modernbert": "mlp_bias", "": None},
    "norm_bias": {"modernbert": "norm_bias", "": None},
    "output_bias": {"modernbert": "decoder_bias", "": None},
    "output_scale": {"cohere2": "logit_scale", "": None},
}  # fmt: skip
"""The keys of settings whose names differ, by architecture ("": all others); None where it has no such key."""
DROPOUT_KEYS = {"mpnet": "attention_probs_dropout_prob", "gpt2": "attn_pdrop"}
"""The keys of the dropout on the weights of attention, where it is not ``attention_dropout``."""
FIXED: dict[str, dict[str, Any]] = {
    "gpt2": {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    "llama4_text": {"use_qk_norm": False},
    "gpt_oss": {"swiglu_alpha": 1.702, "swiglu_limit": 7.0},
    "deepseek_v3": {"norm_topk_prob": True, "rope_interleave": True},
    "modernbert": {"classifier_activation": "gelu"},
    "gemma3_text": {
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "use_bidirectional_attention": False,
    },
    "stablelm": {"use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False},
}  # fmt: skip
"""Keys for which our layers have no option, and the value with which transformers' layers compute what ours do."""
NOT_COMPARED = {
    "encoder_layers", "decoder_layers", "source_vocab_size", "initialisation", "dropout", "dropout_places", "encoder",
    "decoder", "cross",
}  # fmt: skip
"""Fields that one stack does not have, that only training reads, or that ``make_position_keys`` writes: the number of
layers, and positions, which it compares itself."""


def check_architecture(model_type: str, *, read: bool = False) -> None:
    """Raise UsageError for an architecture whose weights are not copied, with the reason where it is known.

    ``read``: whether they are copied from there; some are not copied to there.
    """
    if read and model_type in READ_ONLY:
        return
    if model_type in REFUSED:
        known = ", ".join([*DECODERS, *ENCODERS])
        raise UsageError(f"weights of {model_type} are not copied: {REFUSED[model_type]}; those of {known} are")
    if model_type not in DECODERS and model_type not in ENCODERS:
        raise UsageError(describe_unknown("architecture", model_type, [*DECODERS, *ENCODERS]))


def _find_keys(model_type: str) -> dict[str, str]:
    """Return the key that an architecture has for each of the settings of ``KEYS``, where it has one."""
    keys = {setting: names.get(model_type, names[""]) for setting, names in KEYS.items()}
    return {setting: key for setting, key in keys.items() if key is not None}


def read_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a ``TransformerConfig``, besides position, for a configuration of transformers."""
    model, heads = config.model_type, config.num_attention_heads
    values = {setting: getattr(config, key) for setting, key in _find_keys(model).items()}
    if "activation" in values:
        values["activation"] = ACTIVATION_NAMES.get(values["activation"], values["activation"])
    if model == "gemma3_text":
        values["attention_scale"] = config.query_pre_attn_scalar**-0.5
    side = "encoder" if model in ENCODERS else "decoder"
    if values.get("d_ff", 0) is None:  # GPT-2 names it only where it is another one
        values["d_ff"] = 4 * config.hidden_size
    return {
        "kind": side, "vocab_size": config.vocab_size, "d_model": config.hidden_size, "num_heads": heads,
        "num_kv_heads": heads if model in ENCODERS else getattr(config, "num_key_value_heads", heads),
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        f"{side}_layers": config.num_hidden_layers, "norm": "pre", "norm_kind": "rms", "token_scale": "one",
        "tying": "target" if config.tie_word_embeddings else "none", "gated": True, "ffn_bias": False,
        "dropout": float(getattr(config, DROPOUT_KEYS.get(model, "attention_dropout"))),
        "dropout_places": ("attention",),
        **{**DECODERS, **ENCODERS, **READ_ONLY}[model], **values, **_read_layer_fields(config),
    }  # fmt: skip


def make_keys(ours: TransformerConfig, model_type: str) -> dict[str, Any]:
    """Return the keys of a configuration of transformers, besides position; ``check_fields`` says what they lack."""
    names = {own: theirs for theirs, own in ACTIVATION_NAMES.items()}
    names["clamped-silu"] = "silu"  # of gpt-oss; ``check_fields`` sees that others compute something else
    values = {**{setting: getattr(ours, setting) for setting in KEYS}, "activation": names[ours.activation]}
    table = {
        "vocab_size": ours.vocab_size, "hidden_size": ours.d_model, "num_attention_heads": ours.num_heads,
        "num_key_value_heads": ours.resolved_num_kv_heads, "head_dim": ours.resolved_head_dim,
        "tie_word_embeddings": ours.tying != "none",
        DROPOUT_KEYS.get(model_type, "attention_dropout"): ours.get_dropout("attention"),
        **{key: values[setting] for setting, key in _find_keys(model_type).items()},
    }  # fmt: skip
    if model_type == "gemma3_text":
        scale = ours.attention_scale or ours.resolved_head_dim**-0.5
        table["query_pre_attn_scalar"] = round(scale**-2)  # an integer; ``check_fields`` sees what rounding changes
    if model_type in ("stablelm", *ENCODERS):  # they have no key for the width of a head, which is d_model / num_heads
        del table["head_dim"]
    if model_type in ENCODERS:
        del table["num_key_value_heads"]
    if model_type == "modernbert":
        table["classifier_bias"] = True  # the linear layer of our ``OutputTransform`` has a bias
    return {**table, **_make_layer_keys(ours, model_type), **FIXED.get(model_type, {})}


def check_fields(ours: TransformerConfig, theirs: TransformerConfig, model_type: str) -> None:
    """Raise ConfigError with every field that was lost; ``theirs`` is what the keys made from ``ours`` are read as."""
    faults = []
    own, other = _resolve_fields(ours), _resolve_fields(theirs)
    for name, value in own.items():
        if value != other[name]:
            faults.append(f"{name} is {value!r}, and {model_type} has {other[name]!r}")
    if faults:
        raise ConfigError(faults, "the model")


def _resolve_fields(config: TransformerConfig) -> dict[str, Any]:
    """Return the fields that are compared, each as a model with one stack computes with it."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(TransformerConfig)}
    layers = range(config.count_layers(config.stack_sides[0]))
    with_experts = tuple(layer for layer in layers if config.has_experts(layer))
    fields |= {
        "num_kv_heads": config.resolved_num_kv_heads, "head_dim": config.resolved_head_dim,
        "final_norm": config.has_final_norm, "tying": config.tying != "none",
        "causal_encoder": config.is_causal(config.stack_sides[0]),
        "norm_bias": config.norm_bias and config.norm_kind == "layer",
        "attention_scale": config.attention_scale or config.resolved_head_dim**-0.5,
        "expert_layers": with_experts, "expert_width": config.expert_width or config.d_ff,
        "value_dim": None if config.latent_width is None else config.value_dim or config.resolved_head_dim,
    }  # fmt: skip
    if not with_experts:
        fields |= {
            "experts": 0, "experts_per_token": 1, "expert_width": None, "shared_expert_width": 0, "router": "softmax",
            "router_scale": 1.0, "expert_groups": 1, "expert_groups_per_token": 1,
        }  # fmt: skip
    return {name: value for name, value in fields.items() if name not in NOT_COMPARED}


def _read_layer_fields(config: Any) -> dict[str, Any]:
    """Return the fields of ``LayerOptions`` for a configuration of transformers; none for an architecture without."""
    model = config.model_type
    if model == "gpt_oss":
        return {"experts": config.num_local_experts, "experts_per_token": config.num_experts_per_tok}
    if model == "llama4_text" and config.moe_layers:
        return {
            "experts": config.num_local_experts, "experts_per_token": config.num_experts_per_tok,
            "expert_layers": tuple(sorted(config.moe_layers)), "expert_width": config.intermediate_size,
            "shared_expert_width": config.intermediate_size, "router": "sigmoid-input",
        }  # fmt: skip
    if model != "deepseek_v3":
        return {}
    fields = {
        "latent_width": config.kv_lora_rank, "latent_query_width": config.q_lora_rank,
        "shared_key_dim": config.qk_rope_head_dim, "value_dim": config.v_head_dim,
        "head_dim": config.qk_nope_head_dim + config.qk_rope_head_dim,
    }  # fmt: skip
    first, layers, width = config.first_k_dense_replace or 0, config.num_hidden_layers, config.moe_intermediate_size
    if first < layers:
        fields |= {
            "experts": config.n_routed_experts, "experts_per_token": config.num_experts_per_tok,
            "expert_layers": tuple(range(first, layers)), "expert_width": width, "router": "sigmoid",
            "shared_expert_width": width * config.n_shared_experts, "router_scale": float(config.routed_scaling_factor),
            "expert_groups": config.n_group, "expert_groups_per_token": config.topk_group,
        }  # fmt: skip
    return fields


def _make_layer_keys(ours: TransformerConfig, model_type: str) -> dict[str, Any]:
    """Return the keys of transformers for the fields of ``LayerOptions``; none for an architecture without."""
    width = ours.expert_width or ours.d_ff
    experts = {"num_local_experts": max(ours.experts, 1), "num_experts_per_tok": ours.experts_per_token}
    with_experts = [layer for layer in range(ours.decoder_layers) if ours.has_experts(layer)]
    if model_type == "gpt_oss":
        return experts
    if model_type == "llama4_text":
        return {**experts, "moe_layers": with_experts, "intermediate_size": width}
    if model_type != "deepseek_v3":
        return {}
    return {
        "kv_lora_rank": ours.latent_width or 1, "q_lora_rank": ours.latent_query_width,
        "v_head_dim": ours.value_dim or ours.resolved_head_dim,
        "first_k_dense_replace": min(with_experts, default=ours.decoder_layers),
        "n_routed_experts": max(ours.experts, 1), "num_experts_per_tok": ours.experts_per_token,
        "moe_intermediate_size": width, "n_shared_experts": max(ours.shared_expert_width // width, 1),
        "routed_scaling_factor": ours.router_scale, "n_group": ours.expert_groups,
        "topk_group": ours.expert_groups_per_token,
    }  # fmt: skip
