"""A closed world: a key that looks like position is used, or listed, and what differs there is not called the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from clockhands.explanation import compare, describe, describe_difference, read_positions

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2,
                         "max_position_embeddings": 4096, "rope_theta": 5e5}  # fmt: skip


def read(folder: Path, name: str, content: dict[str, Any] | str, program: str = "transformers5") -> Any:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_positions(path, program)


@pytest.mark.parametrize(
    ("changes", "unread", "strange"),
    [
        ({}, (), ()),
        ({"rotary_pct": 0.25, "rotary_emb_base": 2e4}, ("rotary_pct", "rotary_emb_base"), ()),
        (
            {"rope_local_base_freq": 1e4, "attention_chunk_size": 64},
            ("rope_local_base_freq", "attention_chunk_size"),
            (),
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "beta_fast": 16}}, ("rope_scaling.beta_fast",), ()),
        ({"rope_scaling": {"rope_type": "default", "warp": 2.0}}, (), (("rope_scaling.warp", "2.0"),)),
        ({"yarn_extra": 3, "chunk_size_feed_forward": 0, "hidden_act": "silu"}, (), (("yarn_extra", "3"),)),
        ({"vision_config": {"rope_theta": 100.0}}, (), ()),
    ],
)
def test_keys_that_change_nothing_are_listed(
    changes: dict[str, Any], unread: tuple[str, ...], strange: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    positions = read(tmp_path, "config.json", {**LLAMA, **changes})
    assert (positions.unread, positions.strange) == (unread, strange)
    text = describe(positions)
    assert all(f"{key} is set, but" in text for key in unread)
    assert all(f"{key} = {value} looks like position" in text for key, value in strange)


def test_the_same_key_is_used_by_an_architecture_that_reads_it(tmp_path: Path) -> None:
    neox = read(tmp_path, "config.json", {"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 20000})
    assert (neox.unread, neox.strange) == ((), ())


def test_the_same_is_not_said_while_a_key_differs_that_is_not_understood(tmp_path: Path) -> None:
    plain, other = (
        read(tmp_path / name, "config.json", {**LLAMA, "rope_scaling": {"rope_type": "default", **changes}})
        for name, changes in (("a", {}), ("b", {"mrope_section": [8, 12, 12]}))
    )
    difference = compare(plain, other)
    assert difference is not None and difference.layer is None
    assert "not known to be the same" in describe_difference(difference, plain, other)
    assert compare(other, other) is None and compare(plain, plain) is None


def test_a_file_without_a_window_has_that_of_its_class(tmp_path: Path) -> None:
    """Right the other way round than it looks: null means none, and nothing at all means 4,096."""
    absent, null, given = (
        read(tmp_path / name, "config.json", {**LLAMA, "model_type": "mistral", **changes})
        for name, changes in (("a", {}), ("b", {"sliding_window": None}), ("c", {"sliding_window": 4096}))
    )
    assert compare(absent, given) is None
    assert compare(absent, null) is not None


SAVED: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1], "num_hidden_layers": 3},
    "gemma3_text": {"sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gpt_oss": {"num_hidden_layers": 2},
    "lfm2": {"full_attn_idxs": [2], "num_hidden_layers": 4},
    "deberta-v2": {"pos_att_type": "p2c|c2p", "relative_attention": True, "position_buckets": 256},
    "t5": {"relative_attention_num_buckets": 32},
    "qwen2_vl": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "rope_theta": 1e6},
}


@pytest.mark.parametrize("name", SAVED)
def test_a_raw_file_is_the_same_as_transformers_saves_it_and_no_other_is(name: str, tmp_path: Path) -> None:
    """What is saved has defaults, other spellings, and infinities as tables; one key changed is a difference again."""
    raw = {"model_type": name, **SAVED[name]}
    here = read(tmp_path / "raw", "config.json", raw)
    CONFIG_MAPPING[name].from_dict(dict(raw)).save_pretrained(tmp_path / "saved")
    assert compare(here, read_positions(tmp_path / "saved")) is None
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    changed = {**saved, **dict.fromkeys(("relative_attention_num_buckets", "position_buckets"), 7)}
    changed["rope_theta"] = 777.0
    for table in (changed.get("rope_parameters"), changed.get("text_config", {}).get("rope_parameters")):
        for inside in (table or {}, *((table or {}).get(kind, {}) for kind in ("full_attention", "sliding_attention"))):
            inside |= {"rope_theta": 777.0} if inside else {}
    assert compare(here, read(tmp_path / "changed", "config.json", changed)) is not None


def test_a_number_is_not_said_to_stand_in_a_key_that_is_not_read(tmp_path: Path) -> None:
    """Nomic's class ignores ``rotary_emb_base``; that it has the class's own base does not make it the origin."""
    positions = read(tmp_path, "config.json", {"model_type": "nomic_bert", "rotary_emb_base": 1000})
    assert positions.unread == ("rotary_emb_base",)
    assert positions.rotations()[0].origin["base"] == "default of nomic_bert"


def test_minimax_rotates_half_in_every_format(tmp_path: Path) -> None:
    config = {"model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 48,
              "head_dim": 128, "rotary_dim": 64, "rope_theta": 5000000, "max_position_embeddings": 196608}  # fmt: skip
    flags = "--num-layers 2 --hidden-size 3072 --num-attention-heads 48 --kv-channels 128 --rotary-base 5000000 " \
            "--position-embedding-type rope --rotary-percent "  # fmt: skip
    ours = read(tmp_path, "config.json", config)
    assert ours.rotations()[0].channels == 64 and ours.unread == ()
    assert compare(ours, read(tmp_path, "half.txt", flags + "0.5")) is None
    assert compare(ours, read(tmp_path, "full.txt", flags + "1.0")) is not None


def test_executorch_is_named_and_its_layers_without_rotation_read(tmp_path: Path) -> None:
    params = {"dim": 2048, "n_layers": 8, "n_heads": 16, "hidden_dim": 11008, "norm_eps": 1e-06, "rope_theta": 5e6,
              "use_scaled_rope": False, "use_hf_rope": True, "no_rope_layer_interval": 4}  # fmt: skip
    ours = read(tmp_path, "params.json", params)
    assert (ours.program, ours.strange) == ("ExecuTorch", ())
    assert [layer.rotation is None for layer in ours.layers] == [False, False, False, True] * 2
    smollm3 = {"model_type": "smollm3", "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
               "rope_theta": 5e6, "no_rope_layer_interval": 4, "use_sliding_window": False}  # fmt: skip
    assert compare(ours, read(tmp_path, "config.json", smollm3)) is None
    assert compare(ours, read(tmp_path, "other.json", {**smollm3, "no_rope_layer_interval": 2})) is not None


def test_every_key_of_rope_of_gguf_is_read_or_listed(tmp_path: Path) -> None:
    import gguf

    keys = {key for name, key in vars(gguf.Keys.Rope).items() if not name.startswith("_")}
    listed = {"rope.dimension_sections", "rope.scaling.alpha"}
    for key in sorted(keys - {gguf.Keys.Rope.SCALING_FINETUNED}):
        writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
        for base in ("embedding_length", "attention.head_count", "block_count", "context_length"):
            writer.add_uint32(f"llama.{base}", {"embedding_length": 512, "block_count": 2}.get(base, 8))
        plain = key.removeprefix("{arch}.")
        value: Any = {"rope.scaling.type": "linear"}.get(plain, 4)
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(f"llama.{plain}", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        read = read_positions(tmp_path / "a.gguf")
        assert {name for name, _ in read.strange} == {plain} & listed
        assert set(read.unread) == ({plain} if plain.endswith("_swa") or "yarn_" in plain else set())


def test_a_table_of_a_misspelt_name_is_listed(tmp_path: Path) -> None:
    typo = read(tmp_path, "config.json", {**LLAMA, "rope_scalling": {"rope_type": "llama3", "factor": 8.0}})
    assert [key for key, _ in typo.strange] == ["rope_scalling"]
    assert compare(typo, read(tmp_path, "other.json", LLAMA)) is not None


def test_sizes_that_are_read_for_something_else_are_not_called_unread(tmp_path: Path) -> None:
    raw = {"model_type": "deepseek_v3", "num_hidden_layers": 1, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
           "v_head_dim": 128}  # fmt: skip
    positions = read(tmp_path, "config.json", raw)
    assert (positions.unread, positions.strange) == ((), ())


def test_the_base_of_a_flat_file_of_a_model_with_pictures_is_in_the_file(tmp_path: Path) -> None:
    rule = {"type": "mrope", "mrope_section": [16, 8, 8]}
    raw = {**LLAMA, "model_type": "qwen2_vl", "rope_theta": 2e6, "rope_scaling": rule}
    rotation = read(tmp_path, "config.json", raw).rotations()[0]
    assert (rotation.base, rotation.origin["base"]) == (2e6, "rope_theta")


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (
            {"model_type": "gpt2", "n_positions": 1024},
            {"model_type": "gpt2", "n_positions": 2048},
            "lengths of what is added",
        ),
        ({"model_type": "falcon", "alibi": True}, {"model_type": "gpt2", "n_layer": 32}, "positions enter by ALiBi"),
        ({"model_type": "t5"}, {"model_type": "t5", "relative_attention_num_buckets": 64}, "keys differ that are not"),
    ],
)
def test_models_that_do_not_rotate_are_not_the_same_for_that(
    here: dict[str, Any], there: dict[str, Any], told: str, tmp_path: Path
) -> None:
    difference = compare(read(tmp_path, "config.json", here), read(tmp_path, "other.json", there))
    assert difference is not None and told in difference.what
