"""Read tables of text: CSV, TSV and JSON Lines, with or without gzip. Every error names file and line."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from clockhands.data.readers import read_text
from clockhands.errors import DataError, UsageError, describe_unknown, show_value, suggest_nearest
from clockhands.options import fits

__all__ = ["FORMATS", "STANDS_FOR_CR", "SUFFIXES", "read_column", "read_rows"]

FORMATS = ("csv", "jsonl", "tsv")
SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
STANDS_FOR_CR = "\udc0d"


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
