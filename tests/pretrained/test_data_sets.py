"""Data sets of the library ``datasets``: what was saved is opened, and what is none is one message."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clockhands.errors import DataError
from clockhands.pretrained import load_data_set

datasets = pytest.importorskip("datasets")
ROWS = [{"de": f"Satz {n}", "en": f"sentence {n}"} for n in range(3)]


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
