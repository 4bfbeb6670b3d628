"""A config.json is read as transformers reads it: frequencies, amplitude and pairing equal its modules, to 1e-12."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from clockhands.errors import CheckpointError, UsageError
from clockhands.explanation import describe
from clockhands.explanation.huggingface import lay_over, read_huggingface
from tests.explanation.modules import rotary_modules

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024}


def test_layers_of_deepseek_v4_have_the_table_that_their_attention_reads() -> None:
    config = CONFIG_MAPPING["deepseek_v4"](rope_parameters={**YARN}, num_hidden_layers=4, layer_types=[
        "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention",
    ])  # fmt: skip
    modules, layers = rotary_modules(config), read_huggingface(json.loads(config.to_json_string()), "f").layers
    for layer, kind in zip(layers, ("main", "compress", "compress", "main"), strict=True):
        assert layer.rotation is not None and layer.rotation.amplitude == modules[kind][1] == 1.0
        assert layer.rotation.frequencies() == pytest.approx(modules[kind][0], rel=1e-12, abs=0)
    assert modules["main"][0] != modules["compress"][0]


@pytest.mark.parametrize("name", ["llama", "glm", "cohere", "nanochat", "gpt_neox", "ernie4_5", "deepseek_v4"])
def test_pairing_and_sense_are_those_of_the_code(name: str) -> None:
    """Turn one channel at a time by the model's own function: the channel that appears beside it is its partner."""
    import importlib

    config = CONFIG_MAPPING[name]()
    code = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    rotation = next(layer.rotation for layer in read_huggingface(json.loads(config.to_json_string()), name).layers)
    assert rotation is not None
    rotated = code.rotate_half(torch.eye(8))  # row c: what a 1 in channel c becomes after a quarter turn
    partner = 4 if rotation.pairing == "halves" else 1
    assert rotated[0].tolist() == [float(rotation.direction) * (channel == partner) for channel in range(8)]


def llama(**changes: Any) -> dict[str, Any]:
    return {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2} | changes


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (llama(rope_parameters=[1]), "transformers cannot read f"),
        (llama(rope_theta="many"), "rope_theta = 'many'"),
        (llama(rope_theta=float("nan")), "f sets rope_theta = nan, which is not a finite number"),
        (llama(rope_parameters={"rope_type": "moebius"}), "rope_type 'moebius'"),
        (llama(rope_theta=10**400), "not a finite number"),
        (llama(max_position_embeddings=10**400), "it must be at most|not a finite number|transformers cannot read f"),
        (llama(max_position_embeddings=-1), "max_position_embeddings = -1; it must be at least 1"),
        (llama(max_position_embeddings=True), "transformers cannot read f|not a finite number"),
        (llama(max_position_embeddings="4096"), "transformers cannot read f"),
        (llama(num_hidden_layers=0), "num_hidden_layers = 0; it must be at least 1"),
        (llama(num_hidden_layers=10**12), "num_hidden_layers = 1000000000000; it must be at most 2,000"),
        (llama(model_type="mistral", sliding_window=-5), "sliding_window = -5; it must be at least 1"),
        (llama(model_type="mistral", sliding_window=[4]), "transformers cannot read f"),
        (
            llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "mscale": 1e308, "mscale_all_dim": 1e-300}),
            "logits get the factor inf",
        ),
        (llama(rope_theta=-1.0), "both must be positive"),
        (llama(rope_scaling={"rope_type": "linear", "factor": 0}), "give no frequencies"),
        ({"model_type": "strange", "rope_theta": 1e4}, "neither head_dim nor hidden_size"),
        (
            llama(rope_parameters={"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "1 factors, but 32",
        ),
    ],
)
def test_what_means_nothing_is_refused(raw: dict[str, Any], told: str) -> None:
    with pytest.raises(CheckpointError, match=told.replace("(", r"\(")):
        read_huggingface(raw, "f")


KEYS = (
    *("model_type", "head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers", "rope_theta"),
    *("rope_scaling", "rope_parameters", "layer_types", "sliding_window", "sliding_window_pattern"),
    *("partial_rotary_factor", "no_rope_layers", "text_config", "max_position_embeddings"),
    *("original_max_position_embeddings", "per_layer_config", "rope_local_base_freq"),
)  # fmt: skip
INSIDE = ("rope_type", "rope_theta", "factor", "short_factor", "original_max_position_embeddings", "beta_fast",
          "mscale")  # fmt: skip
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**12), st.floats())
TABLES = st.dictionaries(
    st.sampled_from((*INSIDE, "full_attention")),
    st.one_of(
        NUMBERS,
        st.sampled_from(["yarn", "llama3", "longrope", "x"]),
        st.lists(st.floats(), max_size=2),
        st.dictionaries(st.just("rope_type"), st.just("yarn")),
    ),
)
ANYTHING = st.one_of(
    NUMBERS,
    st.sampled_from(["llama", "gemma3_text", "smollm3"]),
    st.lists(st.sampled_from([0, 1, "full_attention", None]), max_size=3),
    TABLES,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING))
def test_any_configuration_is_read_and_told_or_refused_in_one_sentence(raw: dict[str, Any]) -> None:
    try:
        positions = read_huggingface({**llama(), **raw}, "f")
        describe(positions)
    except CheckpointError as fault:
        assert "\n" not in str(fault)


@pytest.mark.parametrize(
    "raw",
    [
        {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128},
        {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "alibi": True},
        {"model_type": "esm", "hidden_size": 64, "num_attention_heads": 4, "position_embedding_type": "absolute"},
    ],
    ids=lambda raw: raw["model_type"],
)
def test_a_model_that_rotates_nothing_is_not_told_to_rotate(raw: dict[str, Any]) -> None:
    positions = read_huggingface(raw, "f")
    assert positions.rotations() == [] and positions.entry
    assert "rotates nothing" in describe(positions)


def test_hands_that_all_stand_still_are_told() -> None:
    still = {"rope_type": "proportional", "partial_rotary_factor": 0.0}
    assert "no hand moves" in describe(read_huggingface(llama(rope_parameters=still), "f"))
    slow = {"rope_type": "linear", "factor": 1e308}  # no turn within any number of tokens that can be written
    assert "can be wrong" not in describe(read_huggingface(llama(rope_scaling=slow), "f"))


def test_an_unknown_architecture_is_read_as_llama_and_that_is_told() -> None:
    positions = read_huggingface(llama(model_type="my-llama", rope_theta=2e4), "f")
    assert "my-llama" in positions.notes[0]
    assert positions.layers[0].rotation is not None


def test_the_temperature_of_queries_is_told_where_there_is_one() -> None:
    """Ministral 3 multiplies queries beyond the original length; the same file without its beta does not."""
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384}
    raw = {"model_type": "ministral3", "head_dim": 128, "num_hidden_layers": 1, "max_position_embeddings": 262144}
    told = [
        read_huggingface({**raw, "rope_parameters": {**rope, **beta}}, "f").layers[0].temperature
        for beta in ({}, {"llama_4_scaling_beta": 0.1})
    ]
    assert told == ["", "queries × (1 + 0.1 ln(1 + ⌊p/16384⌋)) at position p"]


def test_overrides_replace_tables_and_are_merged_into_parts() -> None:
    """``ModelConfig._apply_dict_overrides`` of vLLM: what is no configuration of its own is set as it stands."""
    raw = {"model_type": "llama", "rope_theta": 5e5, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}
    rule = {"rope_type": "default", "rope_theta": 10000.0}
    for key, table, made in (
        ("rope_parameters", {"rope_theta": 1e6}, {**rule, "rope_theta": 1e6}),
        ("rope_scaling", {"type": "x", "rope_theta": 2.0}, {"rope_type": "x", "type": "x", "rope_theta": 2.0}),
    ):
        assert lay_over(raw, json.dumps({key: table})) == {"model_type": "llama", "rope_parameters": made}
    inside = lay_over({"text_config": raw}, json.dumps({"text_config": {"rope_parameters": {"factor": 4.0}}}))
    assert inside["text_config"] == {**raw, "rope_parameters": {"rope_type": "llama3", "factor": 4.0}}
    assert lay_over(raw, '{"rope_theta": 7.0}') == {**raw, "rope_theta": 7.0}
    assert raw["rope_parameters"] == {"rope_type": "llama3", "factor": 8.0}
    for wrong, told in (
        ("{", "not JSON"),
        ("[1]", "not a table"),
        ('{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}', "without rope_theta"),
    ):
        with pytest.raises(UsageError, match=told):
            lay_over(raw, wrong)
