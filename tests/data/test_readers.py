"""Lines and rows: what ends one, and what is said of a file that is damaged."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhands.data import Pair, open_corpus
from clockhands.data.readers import read_documents, read_lines, read_parallel, read_rows
from clockhands.data.sources import table
from clockhands.errors import ClockhandsError, DataError, UsageError
from clockhands.options import options_of, parse, read_assignments
from clockhands.reading import stream_lines

STAYS = "a\rb\x0bc\x0cd\x85e\u2028f\u2029g\x1ch"
"""Everything that Python's ``splitlines`` cuts at, besides the ends of lines themselves."""
PACKED = gzip.compress(b"eins\nzwei\n" * 2000, mtime=0)
DAMAGED = {
    "cut off": PACKED[:-20],
    "wrong checksum": PACKED[:-8] + b"\0" * 8,
    "wrong inside": PACKED[:20] + b"\xff" * 20 + PACKED[40:],
    "a header alone": PACKED[:10],
    "a fake": b"\x1f\x8bno gzip at all",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_line_feeds_end_a_line(tmp_path: Path, end: str, packed: bool) -> None:
    content = f"\ufeff{STAYS}{end}zwei{end}{end}vier\r".encode()
    path = tmp_path / "a.txt"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read_lines(path) == list(stream_lines(path)) == [STAYS, "zwei", "", "vier\r"]
    assert read_documents(path, "line") == [STAYS, "zwei", "vier\r"]


def test_parallel_files_stay_aligned(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(f"{STAYS}\nzwei\n".encode())
    (tmp_path / "b").write_bytes(b"one\r\ntwo\r\n")
    assert read_parallel(tmp_path / "a", tmp_path / "b") == [Pair(STAYS, "one"), Pair("zwei", "two")]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_lone_carriage_return_ends_no_row(tmp_path: Path, name: str) -> None:
    mark = "," if name.endswith("csv") else "\t"
    (tmp_path / name).write_bytes(f"de{mark}en\r\n{STAYS}{mark}one\r\nzwei{mark}two\n".encode())
    rows = [dict(row) for _, row in read_rows(tmp_path / name)]
    assert rows == [{"de": STAYS, "en": "one"}, {"de": "zwei", "en": "two"}]


def test_a_quoted_cell_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'de,en\r\n"a\rb\nc","x"\r\n')
    assert [dict(row) for _, row in read_rows(tmp_path / "t.csv")] == [{"de": "a\rb\nc", "en": "x"}]


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_gzip_is_one_message_for_every_reader(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(DAMAGED[kind])
    for read in (read_lines, lambda path: list(stream_lines(path)), lambda path: list(read_rows(path, "tsv"))):
        with pytest.raises(DataError, match=r"a\.txt\.gz is broken gzip"):
            read(path)


def test_text_under_a_name_of_gzip_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"eins\n")
    assert list(stream_lines(tmp_path / "a.gz")) == read_lines(tmp_path / "a.gz") == ["eins"]


@pytest.mark.parametrize("name", ["none.txt", "folder", "a\0b"])
def test_a_stream_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*(there is no such file|it is a folder|null)"):
        list(stream_lines(f"{tmp_path}/{name}"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.tsv", "de\tde\n1\t2\n", "more than one column is named 'de'"),
        ("t.csv", "de,en,de\n1,2,3\n", "more than one column is named 'de'"),
        ("t.jsonl", '{"de": "1", "de": "2"}\n', "line 1: more than one column is named 'de'"),
        ("t.jsonl", '{"a": {"de": "1", "de": "2"}}\n', "line 1: more than one column is named 'de'"),
        ("t.jsonl", "[" * 100_000, "line 1: it is nested thousands of levels deep"),
        ("t.jsonl", '{"de": ' + "9" * 5000 + "}", "line 1: .*digits"),
    ],
)
def test_rows_that_cannot_be_told_apart_or_read(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        list(read_rows(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.jsonl", json.dumps({"text": "\ud800"}), r"line 1: column 'text' holds '\\ud800', which is not text"),
        ("a.csv", "title,body\nx,y\n", r"no column 'text', which data\.text names .*; set data\.text=title"),
    ],
)
def test_a_column_that_holds_no_documents(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_corpus("table", train=str(tmp_path / name), text="text")


@pytest.mark.parametrize("encoding", ["zzz", "rot13", "a\0b", "undefined"])
def test_an_encoding_that_is_none(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a").write_text("eins")
    with pytest.raises(UsageError, match="there is no encoding"):
        read_lines(tmp_path / "a", encoding)


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
