"""What is read as vLLM reads it is what vLLM's own rotary modules compute.

Recorded from ``get_rope`` of vLLM 0.25.0 (vllm/model_executor/layers/rotary_embedding), run on the configuration that
transformers makes of the file: heads of 64 channels, base 10,000, 4,096 tokens; float32.
"""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.explanation.huggingface import read_huggingface

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 10000.0}
LONGROPE = {"rope_type": "longrope", "original_max_position_embeddings": 1024,
            "short_factor": [1.0 + pair / 40 for pair in range(32)],
            "long_factor": [1.0 + pair for pair in range(32)]}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}  # fmt: skip
RAMP = [0.749894, 0.0576842, 0.00230737, 0.000187474]
LONG = [0.374947, 0.00749894, 0.000416608, 2.88421e-05]
RECORDED: dict[str, tuple[dict[str, Any], float, list[float]]] = {
    "plain": ({}, 1.0, [0.749894, 0.0749894, 0.00749894, 0.000749894]),
    "linear": ({"type": "linear", "factor": 4.0}, 1.0, [0.187474, 0.0187474, 0.00187474, 0.000187474]),
    "dynamic, alpha": (
        {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, 1.0, [0.600103, 0.0100933, 0.000169761, 2.85526e-06]),
    "yarn": (YARN, 1.138629, RAMP),
    "yarn, attention_factor": ({**YARN, "attention_factor": 1.3}, 1.138629, RAMP),
    "yarn, attn_factor": ({**YARN, "attn_factor": 1.3}, 1.480218, RAMP),
    "yarn, mscale": ({**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}, 1.138629, RAMP),
    "yarn, not scaled": ({**YARN, "apply_yarn_scaling": False, "attn_factor": 1.2}, 1.2, RAMP),
    "yarn, half a ramp": (
        {**YARN, "extrapolation_factor": 0.5}, 1.138629, [0.468684, 0.0382158, 0.00209105, 0.000187474]),
    "yarn, not truncated": (
        {**YARN, "truncate": False, "beta_fast": 20.0}, 1.138629, [0.749894, 0.0657423, 0.00225135, 0.000187474]),
    "yarn, M-RoPE": (
        {**YARN, "mrope_section": [8, 12, 12]}, 1.138629, [0.749894, 0.0749894, 0.00447052, 0.000187474]),
    "llama3": (LLAMA3, 1.0, [0.749894, 0.0749894, 0.00142323, 9.37368e-05]),
    "longrope, which takes no factor": ({**LONGROPE, "factor": 2.0}, 1.095445, LONG),
    "longrope, attention_factor": ({**LONGROPE, "factor": 4.0, "attention_factor": 1.3}, 1.095445, LONG),
    "longrope, mscale": ({**LONGROPE, "factor": 4.0, "short_mscale": 1.2, "long_mscale": 1.3}, 1.3, LONG),
}  # fmt: skip
"""By a rule: its table, the factor of cosines and sines, and radians per token of pairs 1, 9, 17 and 25."""


@pytest.mark.parametrize("what", RECORDED)
def test_a_rule_is_what_vllm_computes(what: str) -> None:
    table, amplitude, frequencies = RECORDED[what]
    raw = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1,
           "max_position_embeddings": 4096, **({"rope_scaling": dict(table)} if table else {})}  # fmt: skip
    rotation = read_huggingface(raw, "f", "vllm").layers[0].rotation
    assert rotation is not None
    assert rotation.amplitude == pytest.approx(amplitude, rel=1e-6)
    assert rotation.frequencies(4096)[1::8] == pytest.approx(frequencies, rel=3e-5)
