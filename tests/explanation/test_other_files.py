"""Mistral's params.json, Megatron's arguments, vLLM's overrides, llama.cpp's flags."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import compare
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.other_files import apply_llama_flags, lay_over, read_megatron, read_mistral

PARAMS: dict[str, Any] = {
    "dim": 4096, "n_layers": 4, "head_dim": 128, "n_heads": 32, "rope_theta": 1e6, "max_position_embeddings": 262144,
    "yarn": {"factor": 16.0, "original_max_position_embeddings": 16384, "beta": 32.0, "alpha": 1.0,
             "apply_scale": False},
}  # fmt: skip
MINISTRAL: dict[str, Any] = {
    "model_type": "ministral3", "head_dim": 128, "num_hidden_layers": 4, "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "original_max_position_embeddings": 16384},
}  # fmt: skip


def test_mistrals_file_and_its_conversion_mean_the_same() -> None:
    assert compare(read_mistral(PARAMS, "params.json"), read_huggingface(MINISTRAL, "config.json")) is None


def test_apply_scale_turns_the_amplitude_on() -> None:
    raw = {**PARAMS, "yarn": {**PARAMS["yarn"], "apply_scale": True}}
    difference = compare(read_mistral(raw, "params.json"), read_huggingface(MINISTRAL, "config.json"))
    assert difference is not None
    assert [cause[0] for cause in difference.causes] == ["amplitude"]


def test_mistrals_windows_may_alternate() -> None:
    layers = read_mistral({**PARAMS, "sliding_window": [None, 4096]}, "params.json").layers
    assert [layer.window for layer in layers] == [None, 4096, None, 4096]
    assert [layer.kind for layer in layers] == ["full_attention", "sliding_attention"] * 2


MEGATRON = "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --position-embedding-type rope"


@pytest.mark.parametrize(
    ("more", "config"),
    [
        ("", {}),
        ("--rotary-base 500000", {"rope_theta": 5e5}),
        ("--rotary-seq-len-interpolation-factor 4", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
        ("--use-rope-scaling --rotary-base 500000",
         {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}),
        ("--kv-channels 128", {"head_dim": 128}),
    ],
)  # fmt: skip
def test_megatrons_arguments_equal_the_configuration(more: str, config: dict[str, Any]) -> None:
    raw = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
           "max_position_embeddings": 131072}  # fmt: skip
    assert compare(read_megatron(f"{MEGATRON} {more}", "a.sh"), read_huggingface({**raw, **config}, "f")) is None


def test_megatron_without_rotation_has_a_table() -> None:
    positions = read_megatron(
        "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --max-position-embeddings 1024", "a"
    )
    assert "learned table of 1024 rows" in positions.entry
    assert positions.rotations() == []


def test_a_text_without_sizes_is_no_training() -> None:
    with pytest.raises(CheckpointError, match="--num-layers"):
        read_megatron("hello world", "a.txt")
    with pytest.raises(UsageError, match="invalid int"):
        read_megatron("--num-layers many", "a.txt")


def test_overrides_are_merged_into_tables() -> None:
    raw = {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "other": 1}
    assert lay_over(raw, '{"rope_parameters": {"rope_type": "yarn"}}') == {
        "rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn"}, "other": 1,
    }  # fmt: skip
    assert raw["rope_parameters"]["rope_type"] == "default"  # type: ignore[index]
    for wrong, told in (("{", "not JSON"), ("[1]", "not a table")):
        with pytest.raises(UsageError, match=told):
            lay_over(raw, wrong)


def test_flags_of_llama_cpp_by_hand() -> None:
    raw = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1,
           "max_position_embeddings": 2048}  # fmt: skip
    positions = read_huggingface(raw, "f")
    linear = apply_llama_flags(positions, "--rope-scale 4").rotations()[0]
    assert linear.frequencies() == pytest.approx([omega / 4 for omega in positions.rotations()[0].frequencies()])
    yarn = apply_llama_flags(positions, "--rope-scaling yarn --rope-freq-scale 0.25").rotations()[0]
    assert (yarn.rule, yarn.factor, yarn.original_length) == ("yarn", 4.0, 2048)
    assert yarn.amplitude == pytest.approx(1 + 0.1 * math.log(4))
    base = apply_llama_flags(positions, "--rope-freq-base 26000").rotations()[0]
    assert (base.base, base.rule) == (26000.0, "default")
    with pytest.raises(UsageError, match="--temp"):
        apply_llama_flags(positions, "--temp 0")


def test_what_mistrals_file_leaves_out_has_the_defaults_of_yarn() -> None:
    """beta 32 and alpha 1, those of the paper and of transformers (Peng et al. 2023, section 3.2)."""
    shorter = {key: value for key, value in PARAMS["yarn"].items() if key not in ("alpha", "beta")}
    rotation = read_mistral({**PARAMS, "yarn": shorter}, "params.json").layers[0].rotation
    assert rotation is not None and (rotation.beta_fast, rotation.beta_slow) == (32.0, 1.0)
