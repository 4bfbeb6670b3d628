"""Mistral's params.json, Megatron's arguments, vLLM's overrides."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import compare
from clockhands.explanation.huggingface import read_huggingface
from clockhands.explanation.other_files import lay_over, read_megatron, read_params

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
    assert compare(read_params(PARAMS, "params.json"), read_huggingface(MINISTRAL, "config.json")) is None


def test_apply_scale_turns_the_amplitude_on() -> None:
    raw = {**PARAMS, "yarn": {**PARAMS["yarn"], "apply_scale": True}}
    difference = compare(read_params(raw, "params.json"), read_huggingface(MINISTRAL, "config.json"))
    assert difference is not None
    assert [cause[0] for cause in difference.causes] == ["amplitude"]


def test_mistrals_windows_may_alternate() -> None:
    layers = read_params({**PARAMS, "sliding_window": [None, 4096]}, "params.json").layers
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


def test_what_mistrals_file_leaves_out_has_the_defaults_of_yarn() -> None:
    """beta 32 and alpha 1, those of the paper and of transformers (Peng et al. 2023, section 3.2)."""
    shorter = {key: value for key, value in PARAMS["yarn"].items() if key not in ("alpha", "beta")}
    rotation = read_params({**PARAMS, "yarn": shorter}, "params.json").layers[0].rotation
    assert rotation is not None and (rotation.beta_fast, rotation.beta_slow) == (32.0, 1.0)


META: dict[str, Any] = {"dim": 4096, "n_layers": 2, "n_heads": 32, "multiple_of": 1024, "ffn_dim_multiplier": 1.3}


def test_metas_llama_3_1_equals_its_conversion() -> None:
    raw = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2,
           "rope_theta": 500000.0, "rope_scaling": {
               "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}}  # fmt: skip
    params = read_params({**META, "rope_theta": 500000.0, "use_scaled_rope": True}, "params.json")
    assert params.program == "Meta" and compare(params, read_huggingface(raw, "f")) is None
    plain = read_params({**META, "use_scaled_rope": False}, "params.json").rotations()[0]
    assert (plain.base, plain.rule, plain.origin["base"]) == (10000.0, "default", "default of Llama 2's code")


def test_metas_llama_4_has_layers_without_rotation_and_chunks() -> None:
    fourth = {**META, "n_layers": 4, "rope_theta": 5e5, "use_scaled_rope": True, "nope_layer_interval": 4,
              "attention_chunk_size": 8192, "attn_temperature_tuning": True}  # fmt: skip
    layers = read_params(fourth, "params.json").layers
    assert [layer.chunk for layer in layers] == [8192] * 3 + [None]
    first = layers[0].rotation
    assert first is not None and (first.factor, first.high_frequency_factor) == (16.0, 1.0)
    assert layers[3].rotation is None and "0.1 ln(1 + ⌊(p + 1)/8192⌋)" in layers[3].temperature


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ({**PARAMS, "yarn": 5}, "sets yarn = 5, which is not a table"),
        ({**PARAMS, "llama_4_scaling": 5}, "sets llama_4_scaling = 5, which is not a table"),
        ({**PARAMS, "sliding_window": [[1]]}, "sliding_window"),
        ({**PARAMS, "sliding_window": -5}, "sliding_window = -5; it must be at least 1"),
        ({**PARAMS, "rope_theta": 10**400}, "not a finite number"),
        ({**PARAMS, "rope_theta": True}, "rope_theta = True"),
        ({**PARAMS, "n_layers": 0}, "n_layers = 0; it must be at least 1"),
        ({**META, "n_heads": 1.5}, "n_heads = 1.5; it must be a whole number"),
        ({**META, "dim": None}, "has no dim"),
    ],
)
def test_values_that_no_model_has_are_refused(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        read_params(raw, "params.json")


def test_megatrons_layers_without_rotation_and_windows() -> None:
    text = MEGATRON.replace("--num-layers 2", "--num-layers 4")
    for flag in ("--no-rope-freq 4", "--no-rope-freq '([0]*3+[1])*1'"):
        layers = read_megatron(f"{text} {flag}", "a").layers
        assert [layer.rotation is None for layer in layers] == [False, False, False, True]
    windows = read_megatron(f"{text} --window-size 127,0 --window-attn-skip-freq 2", "a").layers
    assert [layer.window for layer in windows] == [128, None, 128, None]
    assert [layer.window for layer in read_megatron(f"{text} --window-size '(127, 0)'", "a").layers] == [128] * 4
    strange = read_megatron(f"{text} --mrope-section 8 12 12 --bf16", "a").strange
    assert strange == (("--mrope-section", "set"),)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--rotary-base 0", "base 0"),  # not the default of 10,000, and not credited to the flag
        ("--rotary-percent 0", "0 channels rotate"),
        ("--rotary-base 1e999", "not a finite number"),
        ("--no-rope-freq '[1]'", "no list of 2 layers"),
        ("--no-rope-freq '[0]*10**9'", "no list of 2 layers"),
        ("--window-size x", "no pair"),
        ("--kv-channels -4", "--kv-channels = -4; it must be at least 1"),
    ],
)
def test_megatrons_values_that_mean_nothing_are_refused(flags: str, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        read_megatron(f"{MEGATRON} {flags}", "a.sh")


def test_a_quote_that_is_not_closed_is_told() -> None:
    with pytest.raises(UsageError, match="no closing quotation"):
        read_megatron(f"{MEGATRON} --data 'x", "a.sh")


def test_what_is_not_in_a_file_is_not_said_to_come_from_there() -> None:
    megatron = read_megatron(f"{MEGATRON} --use-rope-scaling", "a").rotations()[0]
    meta = read_params({**META, "use_scaled_rope": True}, "params.json").rotations()[0]
    assert [megatron.origin[name] for name in ("base", "channels", "factor")] == ["default of Megatron"] * 3
    assert (meta.origin["factor"], meta.origin["channels"]) == ("Meta's code", "all of the head")
