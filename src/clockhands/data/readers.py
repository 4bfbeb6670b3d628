"""Reading text files: plain, parallel, tables and JSON Lines, with or without gzip. Every fault names file and line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal, get_args

from clockhands.data.pairs import Pair
from clockhands.errors import DataError, UsageError, nearest, unknown

Unit = Literal["line", "paragraph", "file"]
FORMATS = ("csv", "jsonl", "tsv")
SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """The whole text of a file, unpacked if it is gzip, without a byte order mark, with lines ended by ``\\n``.

    Raises DataError for a missing file, a folder, broken gzip, bytes that are not in ``encoding`` (with their line)
    or no text at all; UsageError for an encoding that does not exist.
    """
    content = _read_bytes(Path(path))
    try:
        text = content.decode(encoding)
    except LookupError as fault:
        raise UsageError(f"there is no encoding {encoding!r}; common ones are utf-8, latin-1, cp1252") from fault
    except UnicodeDecodeError as fault:
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
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except FileNotFoundError as fault:
        raise DataError(f"there is no file {path}") from fault
    except (EOFError, gzip.BadGzipFile, zlib.error) as fault:
        raise DataError(f"{path} is broken gzip: {fault}") from fault
    except OSError as fault:
        raise DataError(f"cannot read {path}: {fault.strerror or fault}") from fault


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a file. Only ``\\n`` ends one: other characters that Unicode calls line ends stay in the text."""
    return read_text(path, encoding).removesuffix("\n").split("\n")


def read_documents(path: str | Path, unit: str = "line", encoding: str = "utf-8") -> list[str]:
    """A text as documents: every line, every paragraph (between blank lines), or the whole file as one.

    Blank lines are no documents. Raises UsageError for an unknown unit, else as ``read_text``.
    """
    if unit not in get_args(Unit):
        raise UsageError(unknown("unit", unit, get_args(Unit)))
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
    """Pairs of the lines of two files. Lines blank on both sides are left out.

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
    return list(pairs_of(rows, skip_blank))


def pairs_of(rows: Iterable[tuple[str, str, str]], skip_blank: bool) -> Iterator[Pair]:
    """Pairs from (place, source, target). ``place`` is told in the DataError for a row blank on one side only."""
    for place, source, target in rows:
        if source.strip() and target.strip():
            yield Pair(source, target)
        elif (source.strip() or target.strip()) and not skip_blank:
            blank = "target" if source.strip() else "source"
            raise DataError(f"{place}: the {blank} is blank; mend it, or leave such pairs out with skip_blank=true")


def read_rows(
    path: str | Path, format: str | None = None, *, header: bool = True, encoding: str = "utf-8"
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a TSV, CSV or JSON Lines file as (place, values by column name).

    ``format`` follows from the file's ending where it is None. Without ``header`` the columns of TSV and CSV are
    named ``1``, ``2`` and so on. TSV has no quotes, CSV has.
    Raises DataError for ragged rows and what is not JSON, UsageError for an ending that says no format.
    """
    name = format or _format(Path(path))
    if name not in FORMATS:
        raise UsageError(unknown("table format", name, FORMATS))
    text = read_text(path, encoding)
    return _json_rows(path, text) if name == "jsonl" else _table_rows(path, text, name, header)


def _format(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1].lower() in SUFFIXES:
        return SUFFIXES[suffixes[-1].lower()]
    raise UsageError(f"{path}: the ending does not say what kind of table this is; give format='tsv', 'csv' or 'jsonl'")


def _table_rows(path: str | Path, text: str, format: str, header: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    stream = io.StringIO(text, newline="")
    if format == "tsv":
        reader = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(stream, strict=True)
    csv.field_size_limit(2**31 - 1)
    try:
        first = next(reader)
        columns = first if header else [str(number) for number in range(1, len(first) + 1)]
        for row in reader if header else chain([first], reader):
            if not row:
                continue
            place = f"{path}, line {reader.line_num}"
            if len(row) != len(columns):
                has = "1 column" if len(row) == 1 else f"{len(row)} columns"
                raise DataError(f"{place} has {has} where the first line has {len(columns)}")
            yield place, dict(zip_longest(columns, row))
    except csv.Error as fault:
        raise DataError(f"{path}, line {reader.line_num}: {fault}") from fault


def _json_rows(path: str | Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as fault:
            raise DataError(f"{place} is no JSON: {fault.msg} at column {fault.colno}") from fault
        if not isinstance(row, dict):
            raise DataError(f"{place} is no JSON object with named columns but {type(row).__name__}")
        yield place, row


def column(row: Mapping[str, Any], name: str, place: str) -> str:
    """The text in a column; ``translation.de`` looks inside a nested one.

    Raises DataError, with ``place`` and the columns there are, for a missing column and for one that holds no text.
    """
    value: Any = row
    for part in (name,) if name in row else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            there = _columns(row)
            raise DataError(f"{place}: there is no column {name!r}{nearest(name, there)} (columns: {', '.join(there)})")
        value = value[part]
    if not isinstance(value, str):
        raise DataError(f"{place}: column {name!r} holds no text but {type(value).__name__}: {str(value)[:40]}")
    return value


def _columns(row: Mapping[str, Any]) -> Sequence[str]:
    nested = (
        [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [key] for key, value in row.items()
    )
    return list(chain.from_iterable(nested))
