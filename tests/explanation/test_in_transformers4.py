"""What is read as transformers 4 reads it is what its own rotary modules compute.

Recorded from the modules of transformers 4.57.1, made of the configuration that its own class makes of the file.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from clockhands.errors import CheckpointError
from clockhands.explanation import convert
from clockhands.explanation.huggingface import read_huggingface

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LISTS = {"short_factor": [1.0 + pair / 64 for pair in range(64)], "long_factor": [1.0 + pair for pair in range(64)]}
RECORDED: dict[str, tuple[dict[str, Any], float, float, float]] = {
    "cohere": ({}, 0.865964353, 0.0001154782, 1.0), "falcon_h1": ({}, 0.835362554, 1.1970850e-05, 1.0),
    "persimmon": ({}, 0.531041861, 7.5323631e-05, 1.0), "qwen3_vl_text": (
        {"rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]}}, 0.785830021, 2.5450797e-07, 1.0),
    "apertus": ({"rope_theta": 5e5}, 0.814617217, 3.0689258e-07, 1.0),
    "gpt_oss": ({"rope_theta": 5e5, "rope_scaling": None}, 0.663601279, 3.0138586e-06, 1.0),
    "nemotron": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 0.749894202, 0.00013335215, 1.0),
    "llama": ({"rope_scaling": YARN, "original_max_position_embeddings": 512}, 0.865964353, 2.8869548e-05, 1.138629436),
    "fuyu": ({}, 0.531041861, 7.5323631e-05, 1.0),
    "qwen3_vl_moe_text": ({"rope_scaling": {"type": "su", **LISTS}}, 0.785829980, 2.5450798e-07, 1.0),
    "qwen2": ({"rope_scaling": {**YARN, "rope_theta": 5e5}}, 0.865964353, 2.8869548e-05, 1.138629436),
}  # fmt: skip
"""By an architecture: keys of the file, the frequencies of pair 1 and of the last, the factor of cosines and sines."""


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_is_what_transformers_4_computes(name: str) -> None:
    keys, second, last, amplitude = RECORDED[name]
    rotation = read_huggingface({"model_type": name, **keys}, "f", "transformers4").layers[-1].rotation
    assert rotation is not None
    frequencies = rotation.frequencies()
    assert (frequencies[1], frequencies[-1]) == pytest.approx((second, last), rel=1e-6)
    assert rotation.amplitude == pytest.approx(amplitude)


def test_longrope_takes_the_ratio_of_lengths_in_place_of_its_factor() -> None:
    rule = {"rope_type": "longrope", "factor": 16.0, **LISTS}
    raw = {"model_type": "cohere2", "rope_scaling": rule, "original_max_position_embeddings": 1024}
    rotation = read_huggingface(raw, "f", "transformers4").layers[0].rotation
    assert rotation is not None and rotation.amplitude == pytest.approx(1.140175425)


KINDS: dict[str, tuple[dict[str, Any], list[tuple[float, float, float]]]] = {
    "olmo3": ({"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 8.0}}, [(1e6, 8, 1), (1e6, 1, 1)]),
    "modernbert": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, [(1.6e5, 2, 1), (1e4, 2, 1)]),
    "modernbert-decoder": ({"local_rope_theta": 1e4}, [(1.6e5, 1, 1), (1.6e5, 1, 1)]),
    "gemma3_text": ({"rope_scaling": {"rope_type": "longrope", "factor": 16.0, **LISTS},
                     "head_dim": 128, "original_max_position_embeddings": 1024}, [(1e6, 128, 1.30384), (1e4, 1, 1)]),
}  # fmt: skip
"""Base, factor and amplitude of full layers and of those with a window, as the models of 4.57.1 make their modules."""


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_layers_rotate_as_the_model_of_transformers_4_makes_them(name: str) -> None:
    keys, expected = KINDS[name]
    layers = read_huggingface({"model_type": name, **keys}, "f", "transformers4").layers
    for kind, (base, factor, amplitude) in zip(("full_attention", "sliding_attention"), expected, strict=True):
        rotation = next(layer.rotation for layer in layers if layer.kind == kind)
        assert rotation is not None and (rotation.base, rotation.factor) == (base, factor)
        assert rotation.amplitude == pytest.approx(amplitude, rel=1e-5)


def test_what_is_written_for_classes_with_rules_of_their_own_is_what_these_take() -> None:
    """Phi-3's class of 4.57.1 refuses a fourth key of ``rope_scaling``; that of Qwen3-VL fails without a table."""
    lists = {key: values[:48] for key, values in LISTS.items()}
    phi3 = {"model_type": "phi3", "original_max_position_embeddings": 4096, "max_position_embeddings": 131072,
            "rope_scaling": {"type": "longrope", **lists}}  # fmt: skip
    written = json.loads(convert(read_huggingface(phi3, "f"), "hf4"))
    assert set(written["rope_scaling"]) == {"type", *LISTS} and written["original_max_position_embeddings"] == 4096
    sections = {"mrope_section": [24, 20, 20], "mrope_interleaved": True}
    qwen3 = {"model_type": "qwen3_vl_text", "rope_scaling": {"rope_type": "default", **sections}, "rope_theta": 5e6}
    written = json.loads(convert(read_huggingface(qwen3, "f"), "hf4"))
    assert written["rope_scaling"] == {"rope_type": "default", **sections}


@pytest.mark.parametrize(("program", "base"), [("transformers4", 5e5), ("vllm", 5e5), ("transformers5", 1e4)])
def test_the_base_of_dbrx_stands_in_a_table_that_transformers_5_ignores(program: str, base: float) -> None:
    """By DbrxAttention of 4.57.1, DbrxAttention of vLLM 0.25 and DbrxRotaryEmbedding of 5.23."""
    raw = {"model_type": "dbrx", "n_layers": 1, "attn_config": {"rope_theta": 500000, "kv_n_heads": 8}}
    rotation = read_huggingface(raw, "f", program).layers[0].rotation
    assert rotation is not None and rotation.base == base
    assert rotation.origin["base"] == ("attn_config.rope_theta" if base == 5e5 else "default of dbrx")
    bare = read_huggingface({"model_type": "dbrx", "n_layers": 1}, "f", program).layers[0].rotation
    assert bare is not None and (bare.base, bare.origin["base"]) == (1e4, "default of dbrx")


def test_a_number_for_llama_4s_temperature_is_its_switch() -> None:
    raw = {"model_type": "llama4_text", "attn_temperature_tuning": 4}
    assert "ln" in read_huggingface(raw, "f", "transformers4").layers[3].temperature


def test_a_share_of_channels_that_attention_does_not_cut_is_refused() -> None:
    raw = {"model_type": "llama", "partial_rotary_factor": 0.5}
    with pytest.raises(CheckpointError, match="a table for 64 channels; attention there multiplies all 128"):
        read_huggingface(raw, "f", "transformers4")
    assert read_huggingface(raw, "f").layers[0].rotation is not None
