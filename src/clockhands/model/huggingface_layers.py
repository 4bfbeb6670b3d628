"""Translate the options of ``LayerOptions``, a compressed state and experts, to keys of transformers and back."""

from __future__ import annotations

from typing import Any

from clockhands.model.config import TransformerConfig

__all__ = ["make_layer_keys", "read_layer_fields", "resolve_layer_options"]


def read_layer_fields(config: Any) -> dict[str, Any]:
    """Return the fields of ``LayerOptions`` for a configuration of transformers; none for an architecture without."""
    model = config.model_type
    if model == "gpt_oss":
        return {"experts": config.num_local_experts, "experts_per_token": config.num_experts_per_tok}
    if model == "llama4_text":
        return _read_llama4(config)
    return _read_deepseek(config) if model == "deepseek_v3" else {}


def _read_llama4(config: Any) -> dict[str, Any]:
    if not config.moe_layers:
        return {}
    return {
        "experts": config.num_local_experts, "experts_per_token": config.num_experts_per_tok,
        "expert_layers": tuple(sorted(config.moe_layers)), "expert_width": config.intermediate_size,
        "shared_expert_width": config.intermediate_size, "router": "sigmoid-input",
    }  # fmt: skip


def _read_deepseek(config: Any) -> dict[str, Any]:
    table = {
        "latent_width": config.kv_lora_rank, "latent_query_width": config.q_lora_rank,
        "shared_key_dim": config.qk_rope_head_dim, "value_dim": config.v_head_dim,
        "head_dim": config.qk_nope_head_dim + config.qk_rope_head_dim,
    }  # fmt: skip
    first, layers = config.first_k_dense_replace or 0, config.num_hidden_layers
    if first >= layers:
        return table
    width = config.moe_intermediate_size
    return {
        **table, "experts": config.n_routed_experts, "experts_per_token": config.num_experts_per_tok,
        "expert_layers": tuple(range(first, layers)), "expert_width": width, "router": "sigmoid",
        "shared_expert_width": width * config.n_shared_experts, "router_scale": float(config.routed_scaling_factor),
        "expert_groups": config.n_group, "expert_groups_per_token": config.topk_group,
    }  # fmt: skip


def make_layer_keys(ours: TransformerConfig, model_type: str) -> dict[str, Any]:
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


def resolve_layer_options(config: TransformerConfig) -> dict[str, Any]:
    """Return the fields of ``LayerOptions`` in which different values can have the same effect, with one value for it.

    Two models of one stack can then be compared field by field (``huggingface_fields.check_fields``).
    """
    layers = config.count_layers(config.stack_sides[0])
    with_experts = tuple(layer for layer in range(layers) if config.has_experts(layer))
    off: dict[str, Any] = {} if with_experts else {
        "experts": 0, "experts_per_token": 1, "expert_width": None, "shared_expert_width": 0, "router": "softmax",
        "router_scale": 1.0, "expert_groups": 1, "expert_groups_per_token": 1,
    }  # fmt: skip
    value_dim = None if config.latent_width is None else config.value_dim or config.resolved_head_dim
    return {
        "expert_layers": with_experts, "expert_width": config.expert_width or config.d_ff,
        "value_dim": value_dim, **off,
    }  # fmt: skip
