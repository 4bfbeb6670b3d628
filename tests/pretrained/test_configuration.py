"""Configurations of others are read as they are written, and what cannot be one is named with its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from clockhands.errors import CheckpointError
from clockhands.pretrained.configuration import (
    is_known,
    is_own,
    load_configuration,
    read_configuration,
    refuse_code,
    reload_configuration,
)


def write(folder: Path, **table: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(table), encoding="utf8")
    return folder


def test_a_table_is_read_as_it_is_written(tmp_path: Path) -> None:
    table = {"name": "für", "deep": {"list": [1, None, {"x": 0.5}]}}
    assert read_configuration(write(tmp_path, **table)) == table


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("config.json", "is a file; give the folder that holds config.json"),
        ("empty", "empty holds no config.json, so it is no saved model"),
        ("no/such/folder", "there is no folder no/such/folder; give a saved model's folder, or a hub name"),
        ("./none", "there is no folder ./none; give"),
    ],
)
def test_what_is_no_saved_model_is_named(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=message):
        read_configuration(source)


def test_types_of_models_are_told_apart() -> None:
    assert is_own({"model_type": "clockhands"}) and not is_own({"model_type": "llama"}) and not is_own({})
    assert is_known({"model_type": "llama"})
    assert not any(map(is_known, ({"model_type": "theirs"}, {"model_type": ["llama"]}, {})))


@pytest.mark.parametrize(
    ("raw", "trusted"),
    [
        ({"model_type": "theirs", "auto_map": {"AutoModel": "theirs.M"}}, True),
        ({"model_type": "llama", "text": {"attn_implementation": "org/kernel"}}, True),
        ({"model_type": "clockhands", "auto_map": {"AutoModel": "theirs.M"}}, False),
    ],
)
def test_code_is_refused_unless_it_is_trusted_and_never_taken_from_a_run(raw: dict[str, Any], trusted: bool) -> None:
    with pytest.raises(CheckpointError, match=r"brings its own code|no run of this project does"):
        refuse_code(raw, "x")
    if trusted:
        refuse_code(raw, "x", trust_remote_code=True)
    else:
        with pytest.raises(CheckpointError, match="no run of this project does"):
            refuse_code(raw, "x", trust_remote_code=True)
    # The code of transformers itself stands for an auto_map of a type that it knows.
    refuse_code({"model_type": "llama", "auto_map": {"AutoModel": "theirs.M"}, "attn_implementation": "sdpa"}, "x")


def test_a_configuration_comes_back_as_the_class_of_transformers(tmp_path: Path) -> None:
    config = LlamaConfig(
        hidden_size=24, num_attention_heads=3, rope_parameters={"rope_type": "default", "rope_theta": 7.0}
    )
    config.save_pretrained(tmp_path)
    for opened in (load_configuration(tmp_path), reload_configuration(config, tmp_path)):
        assert isinstance(opened, LlamaConfig)
        assert (opened.hidden_size, opened.rope_parameters["rope_theta"]) == (24, 7.0)
