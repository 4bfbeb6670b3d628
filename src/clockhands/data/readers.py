"""Read text files: plain, parallel, tables and JSON Lines, with or without gzip. Every error names file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from clockhands.data.memory_check import GZIP_MAGIC, read_bytes
from clockhands.data.pairs import Pair
from clockhands.errors import DataError, UsageError, describe_unknown, show_value, suggest_nearest
from clockhands.options import fits

__all__ = [
    "FORMATS",
    "STANDS_FOR_CR",
    "SUFFIXES",
    "Unit",
    "make_pairs",
    "read_column",
    "read_documents",
    "read_lines",
    "read_parallel",
    "read_rows",
    "read_text",
    "stream_lines",
    "strip_line_end",
]

Unit = Literal["line", "paragraph", "file"]
FORMATS = ("csv", "jsonl", "tsv")
SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
STANDS_FOR_CR = "\udc0d"


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


def read_rows(
    path: str | Path, format: str | None = None, *, header: bool = True, encoding: str = "utf-8"
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Read the rows of a TSV, CSV or JSON Lines file as (place, values by column name).

    ``format`` follows from the file's ending where it is None. Without ``header`` the columns of TSV and CSV are
    named ``1``, ``2`` and so on. TSV has no quotes, CSV has.
    Raises DataError for ragged rows and what is not JSON, UsageError for an ending that says no format.
    """
    name = format or _choose_format(Path(path))
    if name not in FORMATS:
        raise UsageError(describe_unknown("table format", name, FORMATS))
    text = read_text(path, encoding)
    return _read_json_rows(path, text) if name == "jsonl" else _read_table_rows(path, text, name, header)


def _choose_format(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1].lower() in SUFFIXES:
        return SUFFIXES[suffixes[-1].lower()]
    raise UsageError(f"{path}: the ending does not say what kind of table this is; give format='tsv', 'csv' or 'jsonl'")


def _read_table_rows(path: str | Path, text: str, format: str, header: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # The module takes a lone \r for the end of a row. Half a surrogate, which no decoded text holds, stands in for it.
    stream = io.StringIO(text.replace("\r", STANDS_FOR_CR), newline="\n")
    if format == "tsv":
        reader = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(stream, strict=True)
    csv.field_size_limit(2**31 - 1)
    rows = ([value.replace(STANDS_FOR_CR, "\r") for value in row] for row in reader)
    try:
        first = next(rows, [])
        columns = first if header else [str(number) for number in range(1, len(first) + 1)]
        if len(set(columns)) < len(columns):
            raise DataError(f"{path}: {_find_named_twice(columns)}")
        for row in rows if header else chain([first], rows):
            if not row:
                continue
            place = f"{path}, line {reader.line_num}"
            if len(row) != len(columns):
                has = "1 column" if len(row) == 1 else f"{len(row)} columns"
                raise DataError(f"{place} has {has} where the first line has {len(columns)}")
            yield place, dict(zip_longest(columns, row))
    except csv.Error as fault:
        raise DataError(f"{path}, line {reader.line_num}: {fault}") from fault


def _read_json_rows(path: str | Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=_describe_unlike)
        except json.JSONDecodeError as fault:
            raise DataError(f"{place} is not JSON: {fault.msg} at column {fault.colno}") from fault
        except RecursionError as fault:
            raise DataError(f"{place} nests objects or lists too deeply to be read") from fault
        except ValueError as fault:
            # Two columns of one name, or an integer of more digits than Python reads.
            raise DataError(f"{place}: {fault}") from fault
        if not isinstance(row, dict):
            raise DataError(f"{place} is not a JSON object with named columns but {type(row).__name__}")
        yield place, row


def _describe_unlike(columns: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises ValueError for a name that it has twice."""
    row = dict(columns)
    if len(row) < len(columns):
        raise ValueError(_find_named_twice([name for name, _ in columns]))
    return row


def _find_named_twice(names: Sequence[str]) -> str:
    twice = Counter(names).most_common(1)[0][0]
    return f"more than one column is named {show_value(twice)}; give every column its own name"


def read_column(row: Mapping[str, Any], name: str, place: str) -> str:
    """Return the text in a column; ``translation.de`` looks inside a nested one.

    Raises DataError, with ``place`` and the columns there are, for a missing column and for one that holds no text.
    """
    value: Any = row
    for part in (name,) if name in row else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            there = _list_columns(row)
            nearest = suggest_nearest(name, there)
            raise DataError(f"{place}: there is no column {name!r}{nearest} (columns: {', '.join(there)})")
        value = value[part]
    if not isinstance(value, str):
        raise DataError(f"{place}: column {name!r} holds no text but {type(value).__name__}: {show_value(value)}")
    if not fits(value, str):
        # JSON can write "\ud800", half of a pair, which no file and no terminal can hold.
        raise DataError(f"{place}: column {name!r} holds {show_value(value)}, which is not text in Unicode without NUL")
    return value


def _list_columns(row: Mapping[str, Any]) -> Sequence[str]:
    nested = (
        [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [key] for key, value in row.items()
    )
    return list(chain.from_iterable(nested))
