"""Whatever comes from outside is read within bounds, and the bound is told."""

from __future__ import annotations

import gzip
import http.server
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from clockhands import reading
from clockhands.errors import CheckpointError, DataError
from clockhands.reading import (
    DEEPEST_JSON,
    DEEPEST_TOML,
    LARGEST_DOCUMENT,
    LARGEST_SETTINGS,
    LONGEST_LINE,
    fetch,
    read_json,
    read_text,
    read_toml,
    refuse_strange_file,
    stream_lines,
)  # fmt: skip


def test_toml_is_read_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"[training]\nmax_steps = 3\n")
        assert read_toml(path) == {"training": {"max_steps": 3}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = " + b"[" * 5000 + b"]" * 5000, "nests tables or lists more than"),
        (b"[" + b".".join([b"a"] * 5000) + b"]\nb = 1", "nests tables or lists more than"),
        (b"a = " + b"[" * (DEEPEST_TOML + 1) + b"]" * (DEEPEST_TOML + 1), "nests tables or lists more than"),
        (b"a = " + b"9" * 5000, "is not TOML"),
        (b"a = 'caf\xe9'", "it is not UTF-8"),
        (b"a = 1\x00", "is not TOML"),
        (b"#" * (LARGEST_SETTINGS + 1), "is larger than"),
    ],
)
def test_what_is_no_file_of_settings_is_one_message(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_toml(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none.toml", "there is no such file"), (".", "it is a folder"), ("a\0b", "there is no such file")],
)
def test_a_file_of_settings_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"cannot read the plan .*{reason}"):
        read_toml(f"{tmp_path}/{name}", "the plan")


def make_sparse(path: Path) -> None:
    """Make a file that is too large, without writing its bytes."""
    with path.open("wb") as stream:
        stream.truncate(LARGEST_DOCUMENT + 1)


STRANGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "table.json: there is no such file"),
    "folder": (Path.mkdir, "it is a folder"),
    "pipe": (os.mkfifo, "it is no ordinary file but a device or a pipe"),
    "dead link": (lambda path: path.symlink_to("nowhere"), "it is a link to nowhere, which is not there"),
    "large": (make_sparse, "it is larger than 67,108,864 bytes"),
    "latin": (lambda path: path.write_bytes(b'{"a": "\xe9"}'), "it is not UTF-8"),
    "no JSON": (lambda path: path.write_text("{"), "it is not JSON: Expecting property name"),
    "list": (lambda path: path.write_text("[1]"), "it holds a list, not a table of settings"),
    "null": (lambda path: path.write_text("null"), "it holds null, not a table of settings"),
    "number": (lambda path: path.write_text("3"), "it holds a number, not a table of settings"),
    "deep": (
        lambda path: path.write_text('{"a":' * (DEEPEST_JSON + 2) + "1" + "}" * (DEEPEST_JSON + 2)),
        f"it is nested more than {DEEPEST_JSON} levels deep",
    ),
    "digits": (lambda path: path.write_text('{"a": [1, -' + "9" * 400 + "]}"), "a whole number of 401 digits, and 300"),
    "more digits": (lambda path: path.write_text('{"a": ' + "9" * 5000 + "}"), "a whole number of 5,000 digits"),
    "abyss": (lambda path: path.write_text('{"a":' * 100_000), "it is nested thousands of levels deep"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_holds_no_table_is_named(kind: str, tmp_path: Path) -> None:
    make, message = STRANGE[kind]
    make(tmp_path / "table.json")
    with pytest.raises(CheckpointError, match=message):
        read_json(tmp_path / "table.json")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with 12 MiB of free memory."""
    monkeypatch.setattr("clockhands.machine.measure_free_memory", lambda: 12 << 20)
    monkeypatch.setattr(reading, "STEP", 1 << 16)
    return 12 << 20


@pytest.mark.parametrize("packed", [True, False])
def test_text_is_refused_as_soon_as_it_is_more_than_fits(tmp_path: Path, small: int, packed: bool) -> None:
    fits, more = (b"abc " * (small // reading.COPIES // 4 + extra) for extra in (-1, 1))
    pack = gzip.compress if packed else bytes
    (tmp_path / "fits").write_bytes(pack(fits))
    (tmp_path / "more").write_bytes(pack(more))
    assert read_text(tmp_path / "fits") == fits.decode()
    with pytest.raises(DataError, match=r"more holds more than [34]\.\d MiB .*, which does not fit the memory"):
        read_text(tmp_path / "more")


def test_many_short_lines_count_for_what_they_become(tmp_path: Path, small: int) -> None:
    """Thirteen bytes a million times are as many strings of Python, which take 300 bytes each."""
    (tmp_path / "a").write_bytes(b"a\n" * (1 << 20))
    with pytest.raises(DataError, match=r"in \d+,\d+ lines, which does not fit the memory that is free \(12\.0 MiB\)"):
        list(stream_lines(tmp_path / "a"))
    assert sum(1 for _ in stream_lines(tmp_path / "a", keep=False)) == 1 << 20


def test_a_bomb_is_not_unpacked_to_its_end(tmp_path: Path) -> None:
    """The check value at the end of the file is wrong: whoever reads so far says "broken gzip"."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\n" * (64 << 20))[:-8] + bytes(8))
    with pytest.raises(DataError, match=r"unpacks to more than 16\.0 MiB, 30 times its own size"):
        for _ in stream_lines(path, keep=False):
            pass


@pytest.mark.parametrize("packed", [True, False])
def test_a_line_without_end_is_none(tmp_path: Path, packed: bool) -> None:
    line = "x" * LONGEST_LINE
    content = f"first\n{line}x\n".encode()
    (tmp_path / "a").write_bytes(gzip.compress(content + os.urandom(LONGEST_LINE // 10), 1) if packed else content)
    with pytest.raises(DataError, match=r"a, line 2 has more than 16,777,216 characters"):
        list(stream_lines(tmp_path / "a"))
    (tmp_path / "a").write_text(f"{line}\n")
    assert [len(line) for line in stream_lines(tmp_path / "a")] == [LONGEST_LINE]


@pytest.mark.parametrize("read", [read_text, lambda path: list(stream_lines(path)), read_toml, read_json])
def test_devices_and_pipes_are_refused(read: Callable[[str], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises((DataError, CheckpointError), match="it is no ordinary file but a device or a pipe"):
            read(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_other_encodings_of_unicode_are_known_by_their_first_bytes(tmp_path: Path, encoding: str) -> None:
    text = "für\nGrüße 👋\n"
    mark = "" if encoding in ("utf-16", "utf-32", "utf-8-sig") else "\ufeff"
    (tmp_path / "a").write_bytes((mark + text).encode(encoding))
    assert read_text(tmp_path / "a") == text
    assert list(stream_lines(tmp_path / "a")) == ["für", "Grüße 👋"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "cp1252", "shift_jis"])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 64])
def test_text_is_the_same_in_parts_of_every_size(
    tmp_path: Path, encoding: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"shift_jis": "日本語 a\r\nテスト\n\nb"}.get(encoding, "für \u201eGrüße\u201c\r\n\r\nñ a\rb\n")
    (tmp_path / "a").write_bytes(text.encode(encoding))
    monkeypatch.setattr(reading, "STEP", step)
    assert read_text(tmp_path / "a", encoding) == text.replace("\r\n", "\n")
    assert list(stream_lines(tmp_path / "a", encoding)) == text.replace("\r\n", "\n").removesuffix("\n").split("\n")


@pytest.mark.parametrize("step", [1, 4, 1 << 20])
def test_a_wrong_byte_is_named_with_its_line_and_place(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STEP", step)
    (tmp_path / "a").write_bytes("eins\nzwei\nfü".encode() + b"\xfcr\n")
    with pytest.raises(DataError, match=r"a, line 3: byte 14 of the file \(0xfc\) is not utf-8"):
        read_text(tmp_path / "a")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_text_without_the_mark_of_its_encoding_is_told(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a").write_bytes("für\n".encode(f"{encoding}-le"))
    with pytest.raises(DataError, match=rf"a is not {encoding}: .*; try {encoding}-le or {encoding}-be"):
        read_text(tmp_path / "a", encoding)
    assert read_text(tmp_path / "a", f"{encoding}-le") == "für\n"


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers at ``/slow`` a byte now and then, at ``/endless`` without end, at ``/header`` never a whole header."""

    def do_GET(self) -> None:
        parts = {"/slow": [b"x", *[b""] * 100], "/endless": [b"x" * (1 << 20)] * 200}
        if self.path == "/header":
            time.sleep(5)
        self.send_response(200 if self.path != "/refused" else 404)
        self.end_headers()
        try:
            for part in parts.get(self.path, [b"all of it"]):
                self.wfile.write(part or b"x")
                time.sleep(0 if part else 0.1)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_an_answer_is_bounded_in_time_and_bytes(address: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str) -> tuple[int, bytes]:
        return fetch(opener, urllib.request.Request(address + path), 3.0)

    assert ask("/") == (200, b"all of it")
    assert ask("/refused") == (404, b"all of it")
    for path in ("/slow", "/header"):
        began = time.monotonic()
        with pytest.raises(DataError, match=rf"{path} gave no whole answer within 3 seconds"):
            ask(path)
        assert time.monotonic() - began < 4.5
    with pytest.raises(DataError, match=r"/endless answered with more than 67,108,864 bytes"):
        ask("/endless")
    with pytest.raises(OSError, match="refused"):
        fetch(opener, urllib.request.Request("http://127.0.0.1:9/"), 3.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become somebody else")
def test_a_file_that_may_not_be_read_is_told_from_one_that_is_missing() -> None:
    with TemporaryDirectory() as folder:  # nobody else may enter tmp_path
        Path(folder).chmod(0o755)
        (Path(folder) / "closed").touch(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(CheckpointError, match=r"cannot read the file .*closed: Permission denied"):
                refuse_strange_file(f"{folder}/closed")
        finally:
            os.seteuid(0)
        with pytest.raises(DataError, match=r"cannot read the text .*missing: there is no such file"):
            refuse_strange_file(f"{folder}/missing", DataError, "the text")
