"""Lines and rows: what ends one, and what is said of a file that is damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from clockhands.data import Pair
from clockhands.data.readers import read_documents, read_lines, read_parallel
from clockhands.data.table_readers import read_rows
from clockhands.errors import DataError, UsageError
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


def test_half_a_surrogate_pair_is_no_text(tmp_path: Path) -> None:
    from clockhands.data import open_corpus

    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "\ud800"}))
    with pytest.raises(DataError, match=r"line 1: column 'text' holds '\\ud800', which is not text"):
        open_corpus("table", train=str(tmp_path / "t.jsonl"), text="text")


@pytest.mark.parametrize("encoding", ["zzz", "rot13", "a\0b", "undefined"])
def test_an_encoding_that_is_none(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a").write_text("eins")
    with pytest.raises(UsageError, match="there is no encoding"):
        read_lines(tmp_path / "a", encoding)
