"""Read text files, plain and parallel, with or without gzip. Every error names file and line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, get_args

from clockhands.data.memory_check import GZIP_MAGIC, read_bytes
from clockhands.data.pairs import Pair
from clockhands.errors import DataError, UsageError, describe_unknown, show_value

__all__ = [
    "Unit",
    "make_pairs",
    "read_documents",
    "read_lines",
    "read_parallel",
    "read_text",
    "stream_lines",
    "strip_line_end",
]

Unit = Literal["line", "paragraph", "file"]


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Read the whole text of a file, unpacked if it is gzip, without a byte order mark, with lines ended by ``\\n``.

    Raises DataError for a missing file, a folder, broken gzip, more than fits the memory, bytes that are not in
    ``encoding`` (with their line) or no text at all; UsageError for an encoding that does not exist.
    """
    content = _read_bytes(Path(path))
    try:
        text = content.decode(encoding)
    except (LookupError, ValueError) as fault:
        if not isinstance(fault, UnicodeDecodeError):
            known = "utf-8, latin-1, cp1252"
            raise UsageError(f"there is no encoding {show_value(encoding)} of text; common ones are {known}") from fault
        line = content[: fault.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {line}: byte {fault.start + 1} (0x{content[fault.start]:02x}) is not {encoding}; "
            f"convert the file, or give its encoding, such as data.encoding = 'latin-1' in a recipe"
        ) from fault
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.strip():
        raise DataError(f"{path} is empty")
    return text


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a text file")
    try:
        return read_bytes(path)
    except (OSError, EOFError, ValueError, zlib.error) as fault:
        raise _explain_unreadable(path, fault) from fault


def _explain_unreadable(path: Path, fault: Exception) -> DataError:
    """Return the error that says why a file cannot be read."""
    if isinstance(fault, FileNotFoundError):
        return DataError(f"there is no file {path}")
    if isinstance(fault, (EOFError, gzip.BadGzipFile, zlib.error)):
        return DataError(f"{path} is broken gzip: {fault}")
    return DataError(f"cannot read {path}: {getattr(fault, 'strerror', None) or fault}")


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """Read the lines of a file. Only ``\\n`` and ``\\r\\n`` end one.

    Other characters that Unicode calls line ends, and a ``\\r`` alone, stay in the text.
    """
    return read_text(path, encoding).removesuffix("\n").split("\n")


def stream_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a file of any size in UTF-8, unpacked if it is gzip, as ``read_lines`` returns them.

    Raises DataError as ``read_text``, but only at the line that is damaged; an empty file yields nothing.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a text file")
    try:
        with path.open("rb") as plain:
            packed = plain.peek(2)[:2] == GZIP_MAGIC
            with gzip.open(plain) if packed else nullcontext(plain) as stream:
                for number, line in enumerate(stream, 1):
                    yield _decode(path, number, line)
    except (OSError, EOFError, ValueError, zlib.error) as fault:
        raise _explain_unreadable(path, fault) from fault


def _decode(path: Path, number: int, line: bytes) -> str:
    """Return a line without its end and, the first one, without a byte order mark."""
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as fault:
        wrong = f"byte {fault.start + 1} (0x{line[fault.start]:02x})"
        raise DataError(f"{path}, line {number}: {wrong} of the line is not utf-8; convert the file") from fault
    return strip_line_end(text)


def strip_line_end(line: str) -> str:
    """Return a line without the ``\\n`` or ``\\r\\n`` that ends it."""
    return line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line


def read_documents(path: str | Path, unit: str = "line", encoding: str = "utf-8") -> list[str]:
    """Read a text as documents: every line, every paragraph (between blank lines), or the whole file as one.

    Blank lines are no documents. Raises UsageError for an unknown unit, else as ``read_text``.
    """
    if unit not in get_args(Unit):
        raise UsageError(describe_unknown("unit", unit, get_args(Unit)))
    if unit == "file":
        return [read_text(path, encoding)]
    lines = read_lines(path, encoding)
    if unit == "line":
        return [line for line in lines if line.strip()]
    paragraphs = ("\n".join(line if line.strip() else "" for line in lines)).split("\n\n")
    return [paragraph.strip("\n") for paragraph in paragraphs if paragraph.strip()]


def read_parallel(
    source: str | Path, target: str | Path, encoding: str = "utf-8", *, skip_blank: bool = False
) -> list[Pair]:
    """Read pairs from the lines of two files. Lines that are blank on both sides are left out.

    Raises DataError for unequal numbers of lines and, unless ``skip_blank``, for a line blank on one side only;
    else as ``read_text``.
    """
    sources, targets = read_lines(source, encoding), read_lines(target, encoding)
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; "
            "line n of one must be the translation of line n of the other"
        )
    rows = ((f"{source} and {target}, line {n}", *row) for n, row in enumerate(zip(sources, targets, strict=True), 1))
    return list(make_pairs(rows, skip_blank))


def make_pairs(rows: Iterable[tuple[str, str, str]], skip_blank: bool) -> Iterator[Pair]:
    """Yield pairs from rows of (place, source, target); a row that is blank on both sides is left out.

    Unless ``skip_blank``, raises DataError, which names the place, for a row that is blank on one side only.
    """
    for place, source, target in rows:
        if source.strip() and target.strip():
            yield Pair(source, target)
        elif (source.strip() or target.strip()) and not skip_blank:
            blank = "target" if source.strip() else "source"
            raise DataError(f"{place}: the {blank} is blank; mend it, or leave such pairs out with skip_blank=true")
