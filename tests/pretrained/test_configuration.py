"""Configurations, tokenizers and data sets are opened in one place, and no code of theirs runs unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from clockhands.errors import CheckpointError, DataError
from clockhands.pretrained import load_data_set, load_tokenizer
from clockhands.pretrained.configuration import (
    is_known,
    is_own,
    load_configuration,
    read_configuration,
    refuse_code,
    reload_configuration,
)
from tests.runs.tiny import make_tokenizer


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


OTHER = {"tokenizer_class": "GenerationConfig"}
NO_NUMBER = r"sets model_max_length = .* in tokenizer_config.json; it is a number"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": {"model_type": "llama"}}, "holds no tokenizer, neither tokenizer.json nor"),
        ({"tokenizer_config.json": {"tokenizer_class": 3}}, "tokenizer_class = 3; it must be the name of a class"),
        ({"tokenizer_config.json": OTHER, "config.json": {"model_type": "bert"}}, "'GenerationConfig', which is no"),
        ({"config.json": {"model_type": "bert", **OTHER}, "tokenizer_config.json": {}}, "which is no tokenizer"),
        *(({"tokenizer_config.json": {"model_max_length": wrong}}, NO_NUMBER) for wrong in ("x", [1], True, {"a": 1})),
    ],
)  # fmt: skip
def test_what_is_no_tokenizer_is_one_message(files: dict[str, object], message: str, tmp_path: Path) -> None:
    """transformers would call whatever class of its own is named, and compare any length with that of a text."""
    for name, settings in files.items():
        (tmp_path / name).write_text(json.dumps(settings), "utf8")
    with pytest.raises(CheckpointError, match=message):
        load_tokenizer(tmp_path)


datasets = pytest.importorskip("datasets")
ROWS = [{"de": f"Satz {n}", "en": f"sentence {n}"} for n in range(3)]


def test_what_compiled_code_prints_is_kept_from_the_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The library of tokenizers prints a line for every key that it does not know, in the middle of ``--json``."""
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"sep_token": {"content": "|", "rank": 3}}')
    load_tokenizer(tmp_path)
    printed = capfd.readouterr()
    assert printed.out == "" and "rank" in printed.err


def test_splits_and_a_single_split_are_opened_from_the_disk(tmp_path: Path) -> None:
    single = datasets.Dataset.from_list(ROWS)
    single.save_to_disk(tmp_path / "single")
    datasets.DatasetDict({"train": single, "dev": single.select([1])}).save_to_disk(tmp_path / "both")
    assert load_data_set(str(tmp_path / "single")).to_list() == ROWS
    both = load_data_set(str(tmp_path / "both"))
    assert {split: both[split].to_list() for split in both} == {"train": ROWS, "dev": ROWS[1:2]}


def test_a_folder_of_files_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    assert load_data_set(str(tmp_path / "files"))["train"].to_list() == ROWS


def test_what_is_no_data_set_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "state.json").write_text("{")
    for name in ("damaged", "absent"):
        with pytest.raises(DataError, match=f"^cannot open the data set '.*{name}': "):
            load_data_set(str(tmp_path / name))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError):
        load_data_set(str(tmp_path / "damaged"))
