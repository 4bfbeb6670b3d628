"""The one reader of whatever comes from outside: text, packed text, settings in TOML and JSON, answers over HTTP.

Everything here is bounded, and a message tells the bound: the bytes of a document, the length of a line, what fits the
memory, the seconds of an answer, the digits of a number. Devices and pipes, which may have no end, are refused.
"""

from __future__ import annotations

import codecs
import gzip
import json
import threading
import tomllib
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from clockhands.errors import CheckpointError, ClockhandsError, DataError, UsageError, show_value

LARGEST_SETTINGS = 2**23
"""Bytes of the largest file of settings in TOML that is read: a larger one is something else."""
LARGEST_DOCUMENT = 2**26
"""Bytes of the largest JSON document that is read; configurations of real models have some thousands."""
DEEPEST_TOML, DEEPEST_JSON = 20, 64
"""Levels of tables and lists within each other; ours have five at most."""
LONGEST_NUMBER = 300
"""Digits of the longest whole number in JSON: a longer one is beyond what a processor computes with."""
LONGEST_LINE = 2**24
"""Characters of the longest line of text."""
PACKED_ROOM, PACKED_SHARE = 2**24, 30
"""Bytes to which any packed text may unpack, and how many times its own size a larger one may; text does 3 to 10."""
COPIES = 3
"""Text is in memory as bytes, as characters, and as what is made of these, at the same time."""
BYTES_A_LINE = 300
"""Two short strings of Python and the pair that holds them, at the least."""
STEP = 2**20
GZIP_MAGIC = b"\x1f\x8b"
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""The first bytes of text in other encodings of Unicode, the longer ones first; no text in UTF-8 begins so."""


def refuse_strange_file(
    path: str | Path, error: type[ClockhandsError] = CheckpointError, what: str = "the file"
) -> None:
    """Raise ``error`` unless a path, or what a link leads to, is an ordinary file that may be read.

    A device or a pipe may have no end. Of a file that may not be read the Rust code of safetensors and tokenizers says
    "No such file".
    """
    path = Path(path)
    try:
        if path.is_file():
            path.open("rb").close()
            return
        if path.is_dir():
            reason = "it is a folder"
        elif path.is_symlink() and not path.exists():
            reason = f"it is a link to {path.readlink()}, which is not there"
        else:
            reason = "it is no ordinary file but a device or a pipe" if path.exists() else "there is no such file"
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
    raise error(f"cannot read {what} {path}: {reason}")


def read_document(
    path: str | Path, error: type[ClockhandsError] = DataError, what: str = "the file", most: int = LARGEST_DOCUMENT
) -> str:
    """Return a document in UTF-8, with or without a byte order mark; ``what`` names it in messages.

    Raises ``error``, with the path, for what is no ordinary file, has more than ``most`` bytes, or is not UTF-8.
    """
    refuse_strange_file(path, error, what)
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise error(f"cannot read {what} {path}: it is larger than {most:,} bytes")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"cannot read {what} {path}: it is not UTF-8 ({fault.reason} at byte {fault.start + 1})") from fault
    except OSError as fault:
        raise error(f"cannot read {what} {path}: {fault.strerror or fault}") from fault


def read_toml(path: str | Path, what: str = "the file") -> dict[str, Any]:
    """Return the tables of a TOML file of at most ``LARGEST_SETTINGS`` bytes; ``what`` names it in messages.

    Raises DataError for a file that ``read_document`` refuses, is not TOML, or nests tables or lists too deep.
    """
    text = read_document(path, DataError, what, LARGEST_SETTINGS)
    too_deep = f"{path} nests tables or lists more than {DEEPEST_TOML} deep; no file of settings needs that"
    try:
        tables = tomllib.loads(text)
    except RecursionError as fault:
        raise DataError(too_deep) from fault
    except ValueError as fault:  # a fault of the syntax, or an integer of more digits than Python reads
        raise DataError(f"{path} is not TOML: {str(fault)[:200]}") from fault
    if _is_deep(tables, DEEPEST_TOML):
        raise DataError(too_deep)
    return tables


def read_json(
    path: str | Path, error: type[ClockhandsError] = CheckpointError, what: str = "the file"
) -> dict[str, Any]:
    """Return the table that a JSON file holds. Raises ``error`` as ``read_document``, and for anything else in it."""
    try:
        table = parse_json(read_document(path, error, what))
    except ValueError as fault:
        raise error(f"cannot read {what} {path}: {fault}") from fault
    if not isinstance(table, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(table), "a number")
        raise error(f"cannot read {what} {path}: it holds {kind}, not a table of settings")
    return table


def parse_json(text: str | bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return what a JSON text says; ``pairs`` makes an object of names and values.

    Raises ValueError for what is no JSON, nests tables or lists more than ``DEEPEST_JSON`` deep, or holds a whole
    number of more than ``LONGEST_NUMBER`` digits, which no float can take.
    """
    try:
        value = json.loads(text, parse_int=_read_integer, object_pairs_hook=pairs)
    except json.JSONDecodeError as fault:
        place = f"column {fault.colno}" if fault.lineno == 1 else f"line {fault.lineno}, column {fault.colno}"
        raise ValueError(f"it is not JSON: {fault.msg} at {place}") from fault
    except RecursionError as fault:
        raise ValueError("it is nested thousands of levels deep") from fault
    if _is_deep(value, DEEPEST_JSON):
        raise ValueError(f"it is nested more than {DEEPEST_JSON} levels deep")
    return value


def _read_integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"it holds a whole number of {len(digits):,} digits, and {LONGEST_NUMBER} are the most")
    return int(digits)


def _is_deep(tables: Any, deepest: int) -> bool:
    """Return whether tables and lists are nested more than ``deepest`` levels deep."""
    level: list[Any] = [tables]
    for _ in range(deepest):
        level = [item for item in level if isinstance(item, (Mapping, list))]
        level = [inner for item in level for inner in (item.values() if isinstance(item, Mapping) else item)]
    return any(isinstance(item, (Mapping, list)) for item in level)


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the whole text of a file, unpacked if it is gzip, without a byte order mark, with lines ended by ``\\n``.

    Text that begins with the mark of UTF-16 or UTF-32 is read as that where ``encoding`` is the usual one. Raises
    DataError for what is no ordinary file, broken gzip, more than fits the memory, bytes that are not in ``encoding``
    (with their line) or no text at all; UsageError for an encoding that does not exist.
    """
    text = "".join(_stream_text(path, encoding)).replace("\r\n", "\n")
    if not text.strip():
        raise DataError(f"{path} is empty")
    return text


def stream_lines(path: str | Path, encoding: str = "utf-8", *, keep: bool = True) -> Iterator[str]:
    """Yield the lines of a text as ``read_text`` reads it. Only ``\\n`` and ``\\r\\n`` end one.

    Other characters that Unicode calls line ends, and a ``\\r`` alone, stay in the text; an empty file yields nothing.
    ``keep``: whether the caller keeps all lines, so that they must fit the memory. Raises what ``read_text`` raises,
    but only at the line that is damaged; DataError for a line of more than ``LONGEST_LINE`` characters.
    """
    return split_lines(_stream_text(path, encoding, keep=keep), str(path))


def split_lines(parts: Iterator[str], source: str) -> Iterator[str]:
    """Yield the lines of a text that comes in parts, from ``source``, as ``stream_lines`` does."""
    number, rest = 1, ""
    for part in parts:
        *lines, rest = (rest + part).split("\n")
        for line in lines:
            _check_length(line, number, source)
            yield line.removesuffix("\r")
            number += 1
        _check_length(rest, number, source)
    if rest:
        yield rest


def _check_length(line: str, number: int, source: str) -> None:
    if len(line) > LONGEST_LINE:
        raise DataError(
            f"{source}, line {number:,} has more than {LONGEST_LINE:,} characters, which is no line of text; cut it, "
            "or read the file as one document (unit = 'file')"
        )


def _stream_text(path: str | Path, encoding: str, *, keep: bool = True) -> Iterator[str]:
    """Yield the text of a file in parts, without a byte order mark."""
    refuse_strange_file(path, DataError)
    try:
        with Path(path).open("rb") as plain:
            if plain.peek(2)[:2] == GZIP_MAGIC:
                room = max(PACKED_ROOM, PACKED_SHARE * Path(path).stat().st_size)
                with gzip.open(plain) as unpacked:
                    yield from decode_text(_bound(unpacked, path, room, keep=keep), str(path), encoding)
            else:
                yield from decode_text(_bound(plain, path, None, keep=keep), str(path), encoding)
    except (EOFError, gzip.BadGzipFile, zlib.error) as fault:
        raise DataError(f"{path} is broken gzip: {fault}") from fault
    except OSError as fault:
        raise DataError(f"cannot read {path}: {fault.strerror or fault}") from fault


def _bound(stream: Any, path: str | Path, room: int | None, *, keep: bool) -> Iterator[bytes]:
    """Yield a file in parts. Raises DataError after ``room`` bytes and, with ``keep``, after what fits the memory."""
    from clockhands.machine import format_bytes, measure_free_memory

    free, size, lines = measure_free_memory() if keep else 0, 0, 0
    while part := stream.read(STEP):
        size, lines = size + len(part), lines + part.count(b"\n")
        if room is not None and size > room:
            raise DataError(
                f"{path} unpacks to more than {format_bytes(room)}, {PACKED_SHARE} times its own size, as no text "
                "does; unpack it, if that is right"
            )
        if keep and COPIES * size + BYTES_A_LINE * lines > free:
            raise DataError(
                f"{path} holds more than {format_bytes(size - len(part))} in {lines:,} lines, which does not fit the "
                f"memory that is free ({format_bytes(free)}); split it into smaller files"
            )
        yield part


def decode_text(parts: Iterator[bytes], source: str, encoding: str, errors: str = "strict") -> Iterator[str]:
    """Yield bytes from ``source``, which come in parts, as text without a byte order mark.

    Raises DataError, with the line, for bytes that are not in ``encoding`` and, where ``errors`` is strict, for NUL;
    UsageError where the encoding does not exist.
    """
    decoder, read, lines = None, 0, 1
    for part in chain(parts, [b""]):
        decoder = decoder or _make_decoder(encoding, errors, part)
        try:
            text = decoder.decode(part, final=not part)
        except UnicodeDecodeError as fault:
            sound = fault.object[: fault.start].decode(fault.encoding, "ignore")
            yield sound
            line = lines + sound.count("\n")
            place = read + len(part) - len(fault.object) + fault.start
            raise DataError(
                f"{source}, line {line:,}: byte {place + 1:,} of the file (0x{fault.object[fault.start]:02x}) is not "
                f"{encoding}; convert the file, or, to train on it, name its encoding in the recipe, such as "
                "data.encoding = 'latin-1' (data.source_encoding or data.target_encoding where the sides differ)"
            ) from fault
        except UnicodeError as fault:  # text in UTF-16 or UTF-32 without the mark that tells the order of its bytes
            raise DataError(f"{source} is not {encoding}: {fault}; try {encoding}-le or {encoding}-be") from fault
        if "\0" in text and errors == "strict":
            line = lines + text[: text.index("\0")].count("\n")
            raise DataError(
                f"{source}, line {line:,} holds the character NUL, which no text has; if it is UTF-16, convert it, "
                "or, to train on it, set data.encoding = 'utf-16-le'; else this is no file of text"
            )
        read, lines = read + len(part), lines + text.count("\n")
        yield text


def _make_decoder(encoding: str, errors: str, start: bytes) -> codecs.IncrementalDecoder:
    """Return what decodes text that begins with the bytes ``start``. Raises UsageError for an unknown encoding."""
    try:
        name = codecs.lookup(encoding).name
        if name == "utf-8":
            name = next((marked for mark, marked in MARKS.items() if start.startswith(mark)), "utf-8-sig")
        b" ".decode(name, "ignore")  # which codecs that make no text of bytes refuse
        return codecs.getincrementaldecoder(name)(errors)
    except (LookupError, ValueError) as fault:
        known = "utf-8, latin-1, cp1252, utf-16"
        raise UsageError(f"there is no encoding {show_value(encoding)} of text; common ones are {known}") from fault


def fetch(opener: urllib.request.OpenerDirector, request: urllib.request.Request, seconds: float) -> tuple[int, bytes]:
    """Return the status and the body of a server's answer, which has to be there, whole, within ``seconds``.

    Another thread waits for it: a server may send a byte now and then, in its headers too. Raises DataError for an
    answer that takes longer or has more than ``LARGEST_DOCUMENT`` bytes, else what ``urllib`` raises.
    """
    ended: list[tuple[int, bytes] | Exception] = []

    def ask() -> None:
        try:
            try:
                answer = opener.open(request, timeout=seconds)
            except urllib.error.HTTPError as fault:
                answer = fault
            with answer:
                ended.append((answer.status, answer.read(LARGEST_DOCUMENT + 1)))
        except Exception as fault:
            ended.append(fault)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended or isinstance(ended[0], TimeoutError):
        raise DataError(f"{request.full_url} gave no whole answer within {seconds:g} seconds")
    if isinstance(ended[0], Exception):
        raise ended[0]
    if len(ended[0][1]) > LARGEST_DOCUMENT:
        raise DataError(f"{request.full_url} answered with more than {LARGEST_DOCUMENT:,} bytes")
    return ended[0]
