"""One's own text: what is read, and what is said where it cannot be."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.data import Pair, open_corpus
from clockhands.data.readers import read_documents
from clockhands.data.sources import hold_out
from clockhands.errors import ConfigError, DataError, UsageError

PAIRS = [Pair("eins", "one"), Pair("zwei, drei", 'two "three"'), Pair("vier\u2028fünf", "four five")]


def write(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_parallel_files(tmp_path: Path, ending: str, line_end: str) -> None:
    source = write(tmp_path / f"a{ending}", "\ufeff" + line_end.join(pair.source for pair in PAIRS) + line_end)
    target = write(tmp_path / f"b{ending}", line_end.join(pair.target for pair in PAIRS))
    both = {"source": source, "target": target}
    corpus = open_corpus("parallel", **both, validation_source=source, validation_target=target)
    assert corpus.pairs("train") == corpus.pairs("validation") == PAIRS


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl"])
def test_tables(tmp_path: Path, format: str) -> None:
    rows = [{"id": "1", "de": pair.source, "en": pair.target} for pair in PAIRS]
    if format == "jsonl":
        content = "\n".join(json.dumps(row) for row in rows)
    else:
        quote = (lambda cell: cell) if format == "tsv" else (lambda cell: '"' + cell.replace('"', '""') + '"')
        separator = "\t" if format == "tsv" else ","
        content = "\n".join(
            separator.join(map(quote, row)) for row in [["id", "de", "en"], *(r.values() for r in rows)]
        )
    path = write(tmp_path / f"t.{format}.gz", content)
    assert open_corpus("table", train=path, test=path, source="de", target="en").pairs("test") == PAIRS
    documents = open_corpus("table", train=path, test=path, text="en")
    assert documents.documents("test") == [pair.target for pair in PAIRS]


def test_plain_text_by_line_paragraph_and_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "a b\nc\n  \nd\n\n\ne\n")
    read = {unit: open_corpus("text", train=path, test=path, unit=unit) for unit in ("line", "paragraph", "file")}
    assert read["line"].documents("test") == ["a b", "c", "d", "e"]
    assert read["paragraph"].documents("test") == ["a b\nc", "d", "e"]
    assert read["file"].documents("test") == ["a b\nc\n  \nd\n\n\ne\n"]
    with pytest.raises(ConfigError, match="unit is 'word', but must be one of 'line', 'paragraph', 'file'"):
        open_corpus("text", train=path, unit="word")
    with pytest.raises(UsageError, match="unknown unit 'lines'; did you mean 'line'"):
        read_documents(path, "lines")


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1", "a\nb"), write(tmp_path / "2", "c")
    corpus = open_corpus("parallel", source=[one, two], target=[two, one][::-1], test_source=one, test_target=one)
    assert sorted(corpus.sources("train") + corpus.sources("validation")) == ["a", "b", "c"]
    with pytest.raises(UsageError, match="2 source files and 1 target files"):
        open_corpus("parallel", source=[one, two], target=one)


def test_the_end_of_a_single_text_is_held_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "0123456789" * 10)
    corpus = open_corpus("text", train=path, unit="file", holdout=0.1)
    assert [len(text) for text in corpus.documents("train") + corpus.documents("validation")] == [90, 10]


def test_a_single_text_without_two_parts_is_refused() -> None:
    with pytest.raises(UsageError, match="the only document has 1 characters, too few to cut off"):
        hold_out(["x"], 0.1)


@given(st.lists(st.text(min_size=1), min_size=2), st.floats(0.01, 0.5))
def test_held_out_texts_are_in_no_other_split(texts: list[str], share: float) -> None:
    pairs = [Pair(text, str(number)) for number, text in enumerate(texts)]
    if len(set(texts)) < 2:
        with pytest.raises(UsageError, match="training texts are equal"):
            hold_out(pairs, share)
        return
    splits = hold_out(pairs, share)
    train, validation = [{pair.source for pair in splits[name]} for name in ("train", "validation")]
    assert train | validation == set(texts) and not train & validation and train and validation
    # Twice the text changes no text's side.
    assert {pair.source for pair in hold_out(pairs * 2, share)["train"]} == train


# --- Bad input: one clear message each ---------------------------------------------------------------------------


def parallel(tmp_path: Path, source: bytes, target: bytes, **options: Any) -> Any:
    (tmp_path / "a.de").write_bytes(source)
    (tmp_path / "a.en").write_bytes(target)
    return open_corpus("parallel", source=str(tmp_path / "a.de"), target=str(tmp_path / "a.en"), **options)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"", b"one\n", r"a\.de is empty"),
        (b" \n\n", b"one\n", r"a\.de is empty"),
        (b"eins\nzwei\n", b"one\n", r"a\.de has 2 lines and .*a\.en has 1;"),
        (b"eins\n\ndrei\n", b"one\ntwo\nthree\n", "line 2: the source is blank; .*skip_blank=true"),
        (b"eins\nzwei\n", b"one\n\n\n", r"a\.de has 2 lines and .*a\.en has 3;"),
        (b"eins\nzw\0i\n", b"one\ntwo\n", r"a\.de, line 2 holds the character NUL, .*utf-16-le"),
        (b"eins\nf\xfcnf\n", b"one\ntwo\n", r"a\.de, line 2: byte 7 of the file \(0xfc\) is not utf-8; .*latin-1"),
    ],
)
def test_parallel_refuses(tmp_path: Path, source: bytes, target: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parallel(tmp_path, source, target)


def test_what_the_messages_advise_works(tmp_path: Path) -> None:
    corpus = parallel(tmp_path, b"f\xfcnf\nsechs", b"five\nsix", encoding="latin-1", holdout=0.5)
    assert "fünf" in corpus.sources("train") + corpus.sources("validation")
    corpus = parallel(tmp_path, b"eins\n\ndrei\n", b"one\ntwo\nthree\n", skip_blank=True, holdout=0.5)
    assert {pair.target for split in corpus for pair in corpus.pairs(split)} == {"one", "three"}
    with pytest.raises(UsageError, match="there is no encoding 'utf-88'"):
        parallel(tmp_path, b"a\nb", b"c\nd", encoding="utf-88")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    there = write(tmp_path / "there", "a\nb\n")
    with pytest.raises(DataError, match=r"cannot read .*below: there is no such file"):
        open_corpus("text", train=there + "/below")
    with pytest.raises(UsageError, match="the test source file has no target file beside it"):
        open_corpus("parallel", source=there, target=there, test_source=there)
    with pytest.raises(UsageError, match=r"holdout=0\.9 is a share"):
        open_corpus("parallel", source=there, target=there, holdout=0.9)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "source\ttarget\na\tb\nc\n", r"t\.tsv, line 3 has 1 column where the first line has 2"),
        ("t.csv", "source,target\na,b,c\n", r"t\.csv, line 2 has 3 columns where the first line has 2"),
        ("t.csv", 'source,target\n"a,b\n', r"t\.csv, line \d: unexpected end of data"),
        (
            "t.tsv",
            "source\ten\na\tb\n",
            r"t\.tsv, line 2: there is no column 'target'.*\(columns: 'source', 'en'\); set data\.source=source ",
        ),
        ("t.tsv", "source\ttarget\n", "split 'train' holds nothing"),
        (
            "t.jsonl",
            '{"source": "a", "target": "b"}\n{"source"\n',
            r"t\.jsonl, line 2: it is not JSON: .* at column 10",
        ),
        ("t.jsonl", "[1]\n", r"t\.jsonl, line 1 holds no JSON object but a list"),
        ("t.jsonl", '{"source": "a", "target": 3}\n', "line 1: column 'target' holds no text but int: 3"),
        (
            "t.jsonl",
            '{"source": "a", "x": {"en": "b"}}\n',
            r"no column 'target'.*\(columns: 'source', 'x\.en'\); set data\.source=source data\.target=x\.en$",
        ),
    ],
)
def test_tables_refuse(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_corpus("table", train=write(tmp_path / name, content))


def test_a_table_of_unknown_format(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "a\tb\n")
    with pytest.raises(UsageError, match="the ending does not say what kind of table"):
        open_corpus("table", train=path)
    with pytest.raises(UsageError, match="unknown table format 'xlsx'"):
        open_corpus("table", train=path, format="xlsx")


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
