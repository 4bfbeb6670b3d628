"""Tables as people have them: without a header, quoted by a spreadsheet, in the hub's shape."""

from __future__ import annotations

import csv
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.data import Pair, open_corpus
from clockhands.data.sources import table
from clockhands.data.table_readers import read_rows
from clockhands.errors import ClockhandsError, DataError
from clockhands.options import options_of, parse, read_assignments

HEADERLESS = (
    "Zwei junge weiße Männer sind im Freien.\tTwo young, White males are outside.\n"
    '"Ein Mann in grün hält eine Gitarre.\tA man in green holds a guitar.\n'
    'Er sagt: "Komm" und geht.\tHe says "come" and leaves.\n'
)
HUB = '{"translation": {"de": "eins", "en": "one"}}\n{"translation": {"de": "zwei", "en": "two"}}\n'


def follow(path: Path) -> tuple[str, Any]:
    """Open a table, set whatever options the first message names, and open it again with nothing else."""
    with pytest.raises(ClockhandsError) as caught:
        open_corpus("table", train=str(path))
    message = str(caught.value)
    said = re.findall(r"(?:data\.\w+=(?:'[^']*'|\S+) ?)+", message)[-1]
    written = read_assignments(shlex.split(said.replace(";", " ")))
    types = options_of(table)
    options = {key.removeprefix("data."): value.rstrip(",") for key, value in written.items()}
    values = {key: parse(value, types[key].type) for key, value in options.items()}
    corpus = open_corpus("table", train=str(path), **values)
    return message, {pair for split in corpus for pair in corpus.pairs(split)}


def test_a_table_without_a_header_works_after_its_first_message(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(HEADERLESS, "utf8")
    message, pairs = follow(tmp_path / "a.tsv")
    assert "the first line is no header, as it seems: set data.header=false data.source=1 data.target=2" in message
    assert len(message) < 500, "the first pair is not quoted at length"
    assert pairs == {Pair(*line.split("\t")) for line in HEADERLESS.splitlines()}, "and its marks are its own"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "de\ten\neins\tone\nzwei\ttwo\n", "set data.source=de data.target=en, or, if the first line is no"),
        ("a.txt", "eins ist da.\tone is here.\nzwei\ttwo\n", "data.format=tsv; the first line is no header"),
        ("a.jsonl", HUB, "set data.source=translation.de data.target=translation.en"),
        ("a.csv", '"eins, ja",one\n"zwei, nein",two\n', "data.header=false data.source=1 data.target=2"),
    ],
)
def test_the_first_message_has_all_that_is_to_be_set(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content, "utf8")
    with pytest.raises(ClockhandsError, match=re.escape(said)):
        open_corpus("table", train=str(tmp_path / name))


def test_the_keys_of_the_hub_are_named_and_work(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(HUB)
    assert follow(tmp_path / "a.jsonl")[1] == {Pair("eins", "one"), Pair("zwei", "two")}


def test_a_column_of_documents_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body\nx,y\n")
    with pytest.raises(DataError, match=r"no column 'text', which data\.text names .*; set data\.text=title"):
        open_corpus("table", train=str(tmp_path / "a.csv"), text="text")


cells = st.text(st.sampled_from('ab "\t\n,=ä'), max_size=8)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6))
def test_what_a_spreadsheet_quoted_is_read_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    """Python's own writer of the dialect of Excel is the peer. A file in which nothing was quoted has no marks."""
    rows = [("first", 'has "both"'), *rows]
    out = io.StringIO(newline="")
    csv.writer(out, csv.excel_tab, lineterminator="\r\n").writerows(rows)
    path = tmp_path_factory.mktemp("quoted") / "a.tsv"
    path.write_text(out.getvalue(), "utf8", newline="")
    expected = [row for row in rows if row != ("", "")]
    found = [tuple(row.values()) for _, row in read_rows(path, header=False)]
    assert [row for row in found if row != ("", "")] == expected


@pytest.mark.parametrize(
    "content",
    [
        '"a\tb\nc"\td"\n',
        'he said "hi"\tx\n"Ja."\ty\n',
        '"Ja."\t"Nein."\n',
        'a\t"b ""c""" d\n"e ""f"""\tg\n',
        'a\tb"\n"c ""d""\te\n',
    ],
)
def test_marks_that_no_spreadsheet_wrote_belong_to_the_text(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.tsv").write_text(content)
    found = [tuple(row.values()) for _, row in read_rows(tmp_path / "a.tsv", header=False)]
    assert found == [tuple(line.split("\t")) for line in content.splitlines()]


def test_each_side_has_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "de").write_bytes("für\nzwölf\n".encode("utf-16"))
    (tmp_path / "en").write_bytes("for\ncafé\n".encode("latin-1"))
    given_options = {"source": str(tmp_path / "de"), "target": str(tmp_path / "en"), "holdout": 0.5}
    with pytest.raises(DataError, match=r"en, line 2: .*data\.encoding = 'latin-1'.*data\.target_encoding"):
        open_corpus("parallel", **given_options)
    corpus = open_corpus("parallel", **given_options, target_encoding="latin-1")
    assert {pair for split in corpus for pair in corpus.pairs(split)} == {Pair("für", "for"), Pair("zwölf", "café")}


@pytest.mark.parametrize(("name", "sign"), [("t.csv", ";"), ("t.tsv", "|"), ("t.csv", "\t"), ("t.tsv", ",")])
def test_a_table_with_another_sign_between_its_columns_is_told_so(tmp_path: Path, name: str, sign: str) -> None:
    (tmp_path / name).write_text(f"source{sign}target\nein Hund{sign}a dog\n")
    with pytest.raises(DataError, match=re.escape(f"{sign!r} seems to stand between its columns")):
        open_corpus("table", train=str(tmp_path / name))
