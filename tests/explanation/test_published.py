"""Files in the form that their publishers gave them, of the kinds that were once told wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from clockhands.explanation import compare, describe, read_positions
from clockhands.explanation.huggingface import read_huggingface
from tests.explanation.modules import rotary_modules

SIZES = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 4, "max_position_embeddings": 8192}
NOT_TOLD: dict[str, tuple[dict[str, Any], str]] = {
    "DINOv3": ({"model_type": "dinov3_vit", "rope_theta": 100.0}, "axes of a picture"),
    "Pixtral's tower": ({"model_type": "pixtral", "head_dim": 64, "rope_theta": 10000.0}, "axes of a picture"),
    "wav2vec2-conformer": (
        {"model_type": "wav2vec2-conformer", "position_embeddings_type": "rotary"}, "a rule of its own"),
    "Jina v3": ({"model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 20000.0,
                 "auto_map": {"AutoConfig": "x/y--configuration.XLMRobertaFlashConfig"}}, "XLMRobertaFlashConfig"),
    "Grok 2": ({"model_type": "git", "architectures": ["Grok1ForCausalLM"], "rope_theta": 2e8}, "Grok1ForCausalLM"),
    "PLaMo 2": ({"model_type": "plamo2", **SIZES, "mamba_step": 2, "rope_theta": 10000}, "mamba_step is a key of"),
    "Nemotron NAS": ({"model_type": "nemotron-nas", **SIZES, "rope_theta": 5e5, "block_configs": [{}]},
                     "block_configs"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_transformers_own_class_does_not_tell_is_called_not_known(name: str, tmp_path: Path) -> None:
    """All of these rotate, by code that is not read: neither that nothing rotates is said, nor that a key is idle."""
    raw, told = NOT_TOLD[name]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    positions = read_positions(tmp_path)
    text = describe(positions)
    assert positions.entry.startswith("not known") and told in positions.entry
    assert "rotates nothing\n" not in text and "changes nothing here" not in text
    assert positions.rotations() == []


@pytest.mark.parametrize(
    ("raw", "entry"),
    [
        ({"model_type": "bloom", "n_layer": 2}, "ALiBi"),
        ({"model_type": "mpt", "n_layers": 2, "attn_config": {"alibi": False}}, "ALiBi"),  # its module has no other
        (
            {"model_type": "bert", "position_embedding_type": "alibi", "architectures": ["JinaBertForMaskedLM"]},
            "ALiBi",
        ),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "no rotation"),
        ({"model_type": "wav2vec2-bert", "position_embeddings_type": "relative_key"}, "no rotation"),
    ],
)
def test_how_positions_enter_without_rotation_is_named_where_the_code_always_does_it(
    raw: dict[str, Any], entry: str
) -> None:
    assert read_huggingface(raw, "f").entry.startswith(entry)


def test_layers_that_see_less_than_all_and_layers_without_attention_are_told() -> None:
    """GPT-Neo's mask is tril ^ tril(-256): 256 tokens. A token of Longformer sees half of its window to each side."""
    neo = read_huggingface({"model_type": "gpt_neo", "attention_types": [[["global", "local"], 12]]}, "f").layers
    assert [layer.window for layer in neo] == [None, 256] * 12
    assert read_huggingface({"model_type": "longformer", "attention_window": [512] * 12}, "f").layers[0].window == 257
    for name in ("rwkv", "xlstm", "fnet"):
        assert not any(layer.attends for layer in read_huggingface({"model_type": name}, "f").layers)


def test_openais_own_file_of_gpt_oss_is_the_same_as_the_hubs(tmp_path: Path) -> None:
    shared = {"num_hidden_layers": 24, "hidden_size": 2880, "head_dim": 64, "num_attention_heads": 64,
              "num_key_value_heads": 8, "sliding_window": 128, "initial_context_length": 4096,
              "rope_theta": 150000}  # fmt: skip
    own = {**shared, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1, "rope_ntk_beta": 32}
    rule = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0,
            "beta_slow": 1.0, "truncate": False}  # fmt: skip
    hub = {**shared, "model_type": "gpt_oss", "rope_scaling": rule}
    read = read_huggingface(own, "f")
    assert compare(read, read_huggingface(hub, "f")) is None
    assert compare(read, read_huggingface({**hub, "rope_scaling": {**rule, "beta_fast": 16.0}}, "f")) is not None


ORIGINS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "openelm": ({**SIZES, "head_dim": 64, "rope_freq_constant": 1e4}, ["rope_freq_constant"]),
    "phi3small": ({**SIZES, "head_dim": 64, "rope_embedding_base": 1e6}, ["rope_embedding_base"]),
    "modernbert-decoder": ({"global_rope_theta": 1e5, "local_rope_theta": 1e5},
                           ["global_rope_theta", "local_rope_theta"]),
    "mimo_v2_flash": ({"swa_rope_theta": 10000}, ["default of mimo_v2_flash"] * 2),  # which reads no such key
}  # fmt: skip


@pytest.mark.parametrize("name", ORIGINS)
def test_a_base_is_said_to_stand_where_it_was_read(name: str, tmp_path: Path) -> None:
    raw, origins = ORIGINS[name]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, **raw}))
    groups = [layer.rotation for _, layer in read_positions(tmp_path).groups() if layer.rotation]
    assert [rotation.origin["base"] for rotation in groups] == origins


def test_the_amplitude_of_phi_3_small_is_in_its_table() -> None:
    rule = {"type": "su", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32, "short_mscale": 1.0,
            "long_mscale": 1.19, "original_max_position_embeddings": 1024}  # fmt: skip
    rotation = read_huggingface({"model_type": "phi3small", **SIZES, "rope_scaling": rule}, "f").rotations()[0]
    assert rotation.amplitude == 1.0 and rotation.long_factors == (2.0,) * 32
    assert rotation.origin["amplitude"].endswith("beyond the original length 1.19")


TEXT = {"model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12, "rope_theta": 3e6}
NESTED = {
    "colqwen2": ({"vlm_config": {"model_type": "qwen2_vl", "text_config": TEXT}}, "vlm_config.text_config"),
    "dia": ({"decoder_config": {"model_type": "dia_decoder", "rope_theta": 3e6}}, "decoder_config"),
}


@pytest.mark.parametrize("name", NESTED)
def test_the_part_that_reads_text_is_found_where_it_stands(name: str) -> None:
    raw, path = NESTED[name]
    config: Any = CONFIG_MAPPING[name].from_dict(json.loads(json.dumps({"model_type": name, **raw})))
    for key in path.split("."):
        config = getattr(config, key)
    (rotation,) = read_huggingface({"model_type": name, **raw}, "f").rotations()
    assert rotation.frequencies() == pytest.approx(rotary_modules(config)[None][0], rel=1e-12)
    assert rotation.origin["base"] == f"{path}.rope_theta"


@pytest.mark.parametrize("name", ["glm4v", "glm4v_moe"])
def test_a_flat_file_of_pictures_is_for_the_part_that_reads_text_in_transformers_4(name: str) -> None:
    """Glm4vConfig of 4.57.1 hands a flat file on to its text part; transformers 5 does not."""
    raw = {"model_type": name, "rope_theta": 12345.0, "num_hidden_layers": 4, "head_dim": 128}
    for program, expected in (("transformers4", (12345.0, 4)), ("transformers5", (1e4, 40 if name == "glm4v" else 46))):
        positions = read_huggingface(dict(raw), "f", program)
        assert (positions.rotations()[0].base, len(positions.layers)) == expected


def test_which_layers_attend_is_compared_where_nothing_rotates() -> None:
    raw = {"model_type": "granitemoehybrid", "position_embedding_type": "nope", "num_hidden_layers": 2}
    here, there = (
        read_huggingface({**raw, "layer_types": kinds}, "f")
        for kinds in (["mamba", "attention"], ["attention", "attention"])
    )
    difference = compare(here, there)
    assert difference is not None and (difference.layer, compare(here, here)) == (0, None)
    assert "no softmax attention against softmax attention" in difference.what
