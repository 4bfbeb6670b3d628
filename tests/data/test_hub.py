"""Hugging Face data sets as corpora: saved ones, folders of files, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clockhands.data import Pair, open_corpus
from clockhands.errors import DataError, UsageError


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hf")
    rows = [{"translation": {"de": f"Satz {n}", "en": f"sentence {n}"}, "text": f"document {n}"} for n in range(50)]
    data = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(rows), "dev": datasets.Dataset.from_list(rows[:5])}
    )
    data.save_to_disk(folder / "saved")
    (folder / "files").mkdir()
    (folder / "files" / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


def test_a_saved_data_set(saved: Path) -> None:
    columns = {"source": "translation.de", "target": "translation.en"}
    corpus = open_corpus("huggingface", dataset=str(saved / "saved"), validation="dev", **columns)
    assert corpus.pairs("validation")[0] == Pair("Satz 0", "sentence 0")
    assert {split: len(corpus[split]) for split in corpus} == {"train": 50, "validation": 5}


def test_a_folder_of_data_files(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    corpus = open_corpus("huggingface", dataset=str(saved / "files"), text="text", holdout=0.1)
    assert len(corpus.documents("train")) == 45 and len(corpus.documents("validation")) == 5


def test_data_sets_refuse(saved: Path) -> None:
    with pytest.raises(DataError, match=r"saved\[train\], row 0: there is no column 'source'.*translation\.de"):
        open_corpus("huggingface", dataset=str(saved / "saved"))
    with pytest.raises(UsageError, match="unknown split 'training'; did you mean 'train'"):
        open_corpus("huggingface", dataset=str(saved / "saved"), train="training")
    with pytest.raises(DataError, match=r"cannot open the data set '.*absent'"):
        open_corpus("huggingface", dataset=str(saved / "absent"))


def test_without_the_datasets_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"extra 'datasets'.*pip install '\.\[datasets\]'"):
        open_corpus("huggingface", dataset="anything")
