"""Raw configurations as publishers write them: what a file leaves out, or says in an older or an own key."""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["make_variants"]

LINEAR = {"rope_type": "linear", "factor": 8.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 3e5}
LOCAL = {"rope_type": "default", "rope_theta": 2e4}
FULL, SLIDING = "full_attention", "sliding_attention"

VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "base": {"rope_theta": 5e5},
    "whole base": {"rope_theta": 1000000},
    "base, null rule": {"rope_theta": 5e5, "rope_scaling": None},
    "base, null table": {"rope_theta": 5e5, "rope_parameters": None},
    "empty rule": {"rope_scaling": {}, "rope_theta": 5e5},
    "type linear": {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "linear alone": {"rope_scaling": LINEAR},
    "linear and base": {"rope_theta": 1e6, "rope_scaling": LINEAR},
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 4.0}, "rope_theta": 2e4},
    "alpha": {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}, "rope_theta": 1e4},
    "alpha 0": {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 0}},
    "yarn": {"rope_scaling": YARN, "rope_theta": 1e6},
    "yarn without base": {"rope_scaling": YARN},
    "yarn without length": {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    "yarn, length outside": {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 512},
    "yarn, two lengths": {"rope_scaling": YARN, "original_max_position_embeddings": 512},
    "yarn, mscale": {"rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}},
    "yarn, equal mscale": {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "yarn, factor of attention": {"rope_scaling": {**YARN, "attention_factor": 1.3, "beta_fast": 16, "beta_slow": 2}},
    "yarn, not rounded": {"rope_scaling": {**YARN, "truncate": False}},
    "yarn, null betas": {"rope_scaling": {**YARN, "beta_fast": None, "beta_slow": 0}},
    "llama3": {"rope_scaling": LLAMA3, "rope_theta": 5e5},
    "llama3, low = high": {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}, "rope_theta": 5e5},
    "llama3, low > high": {"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0, "high_freq_factor": 1.0}},
    "llama3 without length": {"rope_scaling": {k: v for k, v in LLAMA3.items() if "max" not in k}},
    "proportional": {"rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
    "table": {"rope_parameters": PLAIN},
    "table without base": {"rope_parameters": {"rope_type": "default"}, "rope_theta": 7e5},
    "table and base": {"rope_parameters": PLAIN, "rope_theta": 7e5},
    "table and rule": {"rope_parameters": PLAIN, "rope_scaling": LINEAR},
    "yarn in a table": {"rope_parameters": {**YARN, "rope_theta": 2e5}},
    "sections": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 1e6},
    "two tables": {"rope_parameters": {FULL: PLAIN, SLIDING: LOCAL}},
    "two tables, one rule": {"rope_parameters": {FULL: {**YARN, "rope_theta": 1e6}, SLIDING: LOCAL}},
    "two rules, not rounded": {"rope_parameters": {FULL: {**YARN, "truncate": False}, SLIDING: LINEAR}},
    "one table of two": {"rope_parameters": {FULL: PLAIN}},
    "the other of two": {"rope_parameters": {SLIDING: LOCAL}},
    "two tables, base outside": {
        "rope_parameters": {FULL: LINEAR, SLIDING: {"rope_type": "default"}}, "rope_theta": 9e5},
    "a null table of two": {"rope_parameters": {FULL: None, SLIDING: LOCAL}},
    "share": {"partial_rotary_factor": 0.5},
    "share in a table": {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}},
    "share, linear": {"partial_rotary_factor": 0.5, "rope_scaling": LINEAR},
    "share of kinds": {"rope_parameters": {FULL: {**PLAIN, "partial_rotary_factor": 0.5}, SLIDING: LOCAL}},
    "rotary_pct": {"rotary_pct": 0.5},
    "rotary_emb_base": {"rotary_emb_base": 20000},
    "rotary_dim": {"rotary_dim": 32},
    "rotary_dim, linear": {"rotary_dim": 32, "rope_scaling": LINEAR},
    "two bases of ModernBERT": {"global_rope_theta": 3e5, "local_rope_theta": 2e4},
    "local base": {"rope_local_base_freq": 3e4},
    "two bases of Gemma": {"rope_theta": 2e6, "rope_local_base_freq": 3e4, "rope_scaling": LINEAR},
    "base of windows": {"swa_rope_theta": 3e4, "compress_rope_theta": 4e4},
    "width": {"head_dim": 64},
    "null width": {"head_dim": None},
    "null width, yarn": {"head_dim": None, "rope_scaling": YARN},
    "width by division": {"hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8},
    "width of a slice": {"qk_rope_head_dim": 32},
    "width of global layers": {"global_head_dim": 128},
    "null window": {"sliding_window": None},
    "window": {"sliding_window": 777},
    "window switched on": {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 2},
    "window switched off": {"use_sliding_window": False, "sliding_window": 100},
    "pattern of windows": {"sliding_window_pattern": 3, "num_hidden_layers": 7},
    "ModernBERT's window": {"local_attention": 256, "global_attn_every_n_layers": 2},
    "seven layers": {"num_hidden_layers": 7},
    "kinds": {"num_hidden_layers": 4, "layer_types": [SLIDING, FULL, SLIDING, FULL]},
    "kinds, linear": {"num_hidden_layers": 4, "layer_types": [SLIDING, FULL] * 2, "rope_scaling": LINEAR},
    "Bamba's layers": {"attn_layer_indices": [1, 3], "num_hidden_layers": 6},
    "LFM2's layers": {"full_attn_idxs": [2], "num_hidden_layers": 6},
    "layers without rotation": {"no_rope_layers": [1, 0, 1, 0], "num_hidden_layers": 4},
    "interval without rotation": {"no_rope_layer_interval": 3, "num_hidden_layers": 6},
    "bases of layers": {"layer_rope_theta": [1e4, 0, 2e4, 0], "num_hidden_layers": 4},
    "list of bases": {"rope_theta": [5e6, 1e4, 1e4, 1e4], "num_hidden_layers": 4},
    "list of shares": {"partial_rotary_factors": [0.5, 1.0, 1.0, 1.0], "num_hidden_layers": 4},
    "chunk": {"attention_chunk_size": 512},
    "temperature": {"attn_temperature_tuning": True, "floor_scale": 4096, "attn_scale": 0.2},
    "Llama 4's beta": {"rope_parameters": {**YARN, "rope_theta": 1e6, "llama_4_scaling_beta": 0.3}},
    "length": {"max_position_embeddings": 4096},
    "length, longrope": {"max_position_embeddings": 8192, "original_max_position_embeddings": 2048},
    "pairs of halves": {"rope_interleave": False},
    "no rotation": {"position_embedding_type": "nope", "alibi": True},
    "rotation named": {"position_embedding_type": "rope", "use_mem_rope": True},
}  # fmt: skip


def make_variants(channels: int) -> dict[str, dict[str, Any]]:
    """Return the variants by name, with lists of LongRoPE for that many channels."""
    lists = {"short_factor": [1.0 + pair / 64 for pair in range(channels // 2)],
             "long_factor": [1.0 + pair for pair in range(channels // 2)]}  # fmt: skip
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, **lists}
    more = {
        "longrope": {"rope_scaling": {**longrope, "original_max_position_embeddings": 1024}},
        "longrope, factor": {"rope_scaling": {**longrope, "factor": 16.0}, "original_max_position_embeddings": 1024},
        "su": {"rope_scaling": {"type": "su", **lists}, "max_position_embeddings": 8192},
    }
    return copy.deepcopy({**VARIANTS, **more})
