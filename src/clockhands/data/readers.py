"""Read text: lines, parallel files, CSV, TSV and JSON Lines, with or without gzip. Errors name file and line."""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast, get_args

from clockhands.data.population import Pair
from clockhands.data.splits import Items
from clockhands.errors import DataError, UsageError, describe_unknown, show_value
from clockhands.options import fits
from clockhands.reading import LONGEST_LINE, parse_json, read_text, stream_lines

Unit = Literal["line", "paragraph", "file"]


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """Read the lines of a file as ``stream_lines`` does. Raises DataError for a file without text too."""
    lines = list(stream_lines(path, encoding))
    if not any(map(str.strip, lines)):
        raise DataError(f"{path} is empty")
    return lines


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
    source: str | Path,
    target: str | Path,
    encoding: str = "utf-8",
    target_encoding: str | None = None,
    *,
    skip_blank: bool = False,
) -> list[Pair]:
    """Read pairs from the lines of two files. Lines that are blank on both sides are left out.

    ``target_encoding``: of the other file, where it has one of its own.

    Raises DataError for unequal numbers of lines and, unless ``skip_blank``, for a line blank on one side only;
    else as ``read_text``.
    """
    sources, targets = read_lines(source, encoding), read_lines(target, target_encoding or encoding)
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}; "
            "line n of one must be the translation of line n of the other"
        )
    rows = ((f"{source} and {target}, line {n}", *row) for n, row in enumerate(zip(sources, targets, strict=True), 1))
    return cast(list[Pair], collect_items(rows, skip_blank))


def collect_items(rows: Iterable[tuple[str, ...]], skip_blank: bool) -> Items:
    """Return the pairs of rows of (place, source, target), or the documents of rows of (place, text).

    A row that is blank on all sides is left out. Unless ``skip_blank``, raises DataError, which names the place, for a
    pair that is blank on one side only.
    """
    items: list[Any] = []
    for place, *texts in rows:
        there = [bool(text.strip()) for text in texts]
        if all(there):
            items.append(Pair(texts[0], texts[1]) if len(texts) == 2 else texts[0])
        elif any(there) and not skip_blank:
            blank = "target" if there[0] else "source"
            raise DataError(
                f"{place}: the {blank} is blank; mend it, or leave such pairs out with data.skip_blank=true"
            )
    return items


FORMATS = ("csv", "jsonl", "tsv")
SUFFIXES = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
STANDS_FOR_CR = "\udc0d"
QUOTED_CELL = r'(?:"(?:[^"]|"")*"|[^"\t\n]*)'
QUOTED_ROW = re.compile(rf"{QUOTED_CELL}(?:\t{QUOTED_CELL})*")
NEEDS_QUOTES = re.compile(r'(?:^|\t)"[^"]*(?:""|\t|\n)')
NAME = re.compile(r"\S+(?:[ _]\S+)?")
"""What a column is called: one word or two. A sentence has more."""


def read_rows(
    path: str | Path, format: str | None = None, *, header: bool = True, encoding: str = "utf-8"
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Read the rows of a TSV, CSV or JSON Lines file as (place, values by column name).

    ``format`` follows from the file's ending where it is None. Without ``header`` the columns of TSV and CSV are
    named ``1``, ``2`` and so on. CSV has quotes; TSV has them where a spreadsheet wrote it, see ``_is_quoted``.
    Raises DataError for ragged rows and what is not JSON, UsageError for an ending that says no format.
    """
    format = format or _choose_format(Path(path), encoding)
    if format not in FORMATS:
        raise UsageError(describe_unknown("table format", format, FORMATS))
    is_json = format == "jsonl"
    return _read_json_rows(path, encoding) if is_json else _read_table_rows(path, format, header, encoding)


def _choose_format(path: Path, encoding: str) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1].lower() in SUFFIXES:
        return SUFFIXES[suffixes[-1].lower()]
    first = next(stream_lines(path, encoding), "")
    seems = "tsv" if "\t" in first else "jsonl" if first.startswith("{") else "csv"
    columns = ""
    if seems != "jsonl":
        names = next(csv.reader([first], delimiter="\t" if seems == "tsv" else ","), [])
        columns = f"; {_advise(dict.fromkeys(names, ''), {'source': 'source', 'target': 'target'}, header=True)}"
    raise UsageError(
        f"{path}: the ending does not say what kind of table this is; give data.format as tsv, csv or jsonl, here "
        f"data.format={seems}{columns}"
    )


def _read_table_rows(
    path: str | Path, format: str, header: bool, encoding: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # The module takes a lone \r for the end of a row. Half a surrogate, which no decoded text holds, stands in for it.
    lines = (line.replace("\r", STANDS_FOR_CR) + "\n" for line in stream_lines(path, encoding))
    csv.field_size_limit(LONGEST_LINE)
    if format == "csv":
        reader = csv.reader(lines, strict=True)
    elif _is_quoted(path, encoding):
        reader = csv.reader(lines, csv.excel_tab, strict=True)
    else:
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    rows = ([value.replace(STANDS_FOR_CR, "\r") for value in row] for row in reader)
    try:
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path} is empty")
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
            yield place, dict(zip(columns, row, strict=True))
    except csv.Error as fault:
        raise DataError(f"{path}, line {reader.line_num}: {fault}") from fault


def _is_quoted(path: str | Path, encoding: str) -> bool:
    """Return whether a TSV is quoted as a spreadsheet does it; in other ones a quotation mark is a part of the text.

    A spreadsheet puts every cell with a quotation mark, a tab or a line end into quotation marks, and doubles those
    inside. So the whole file has to be read before the first cell; a single mark that stands otherwise decides.
    """
    pending, is_needed = "", False
    for line in stream_lines(path, encoding, keep=False):
        if not pending and '"' not in line:
            continue
        pending += line
        if pending.count('"') % 2 and len(pending) < LONGEST_LINE:
            pending += "\n"
            continue
        if not QUOTED_ROW.fullmatch(pending):
            return False
        is_needed, pending = is_needed or bool(NEEDS_QUOTES.search(pending)), ""
    return is_needed and not pending


def _read_json_rows(path: str | Path, encoding: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    is_empty = True
    for number, line in enumerate(stream_lines(path, encoding), 1):
        if not line.strip():
            continue
        is_empty, place = False, f"{path}, line {number}"
        try:
            row = parse_json(line, _make_object)
        except ValueError as fault:
            raise DataError(f"{place}: {fault}; JSON Lines have one object a line") from fault
        if not isinstance(row, dict):
            kind = type(row).__name__
            raise DataError(f"{place} holds no JSON object but a {kind}; JSON Lines have one object a line")
        yield place, row
    if is_empty:
        raise DataError(f"{path} is empty")


def _make_object(columns: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(columns)
    if len(row) < len(columns):
        raise ValueError(_find_named_twice([name for name, _ in columns]))
    return row


def _find_named_twice(names: Sequence[str]) -> str:
    twice = Counter(names).most_common(1)[0][0]
    return f"more than one column is named {show_value(twice)}; give every column its own name"


def read_texts(
    path: str | Path, columns: Mapping[str, str], format: str | None, *, header: bool, encoding: str
) -> Iterator[tuple[str, ...]]:
    """Read the texts in some columns of a table: ``read_rows`` and ``pick_texts``, which raise what is wrong."""
    format = format or _choose_format(Path(path), encoding)
    rows = read_rows(path, format, header=header, encoding=encoding)
    return pick_texts(rows, columns, header=header and format != "jsonl")


def pick_texts(
    rows: Iterator[tuple[str, Mapping[str, Any]]], columns: Mapping[str, str], *, header: bool = False
) -> Iterator[tuple[str, ...]]:
    """Yield the place of each row and its texts, in the order of ``columns``: names by the option that gives them.

    The name ``translation.de`` looks inside a column. ``header``: whether the first line of a table gave the names.
    Raises DataError for a column that holds no text, and for one that is missing, with the options to set.
    """
    for place, row in rows:
        texts = []
        for option, name in columns.items():
            value: Any = row
            for part in (name,) if name in row else name.split("."):
                if not isinstance(value, Mapping) or part not in value:
                    there = ", ".join(show_value(column, 40) for column in _list_columns(row))
                    raise DataError(
                        f"{place}: there is no column {name!r}, which data.{option} names (columns: {there}); "
                        f"{_advise(row, columns, header)}"
                    )
                value = value[part]
            if not isinstance(value, str):
                what = f"no text but {type(value).__name__}: {show_value(value)}"
                raise DataError(f"{place}: column {name!r} holds {what}")
            if not fits(value, str):
                # JSON can write "\ud800", half of a pair, which no file and no terminal can hold.
                what = f"{show_value(value)}, which is not text in Unicode without NUL"
                raise DataError(f"{place}: column {name!r} holds {what}")
            texts.append(value)
        yield (place, *texts)


def _advise(row: Mapping[str, Any], columns: Mapping[str, str], header: bool) -> str:
    """Say which options to set for a table with this row; where it has a ``header``, that may be the first pair."""
    there = _list_columns(row)
    if len(there) < len(columns):
        other = next((sign for sign in ";|\t," if header and sign in there[0]), "")
        if other:
            return f"{other!r} seems to stand between its columns: save it as tsv with tabs, or as csv with commas"
        return f"it takes a column for each of {', '.join(f'data.{option}' for option in columns)}"
    free = [name for name in there if name not in columns.values()]
    named = {option: name if name in there else free.pop(0) for option, name in columns.items()}
    numbered = {option: str(number) for number, option in enumerate(columns, 1)}
    by_name = " ".join(f"data.{option}={shlex.quote(name)}" for option, name in named.items())
    by_number = " ".join(f"data.{option}={number}" for option, number in numbered.items())
    if not header:
        return f"set {by_name}"
    if not all(NAME.fullmatch(name) for name in there):
        return f"the first line is no header, as it seems: set data.header=false {by_number}"
    return f"set {by_name}, or, if the first line is no header, data.header=false {by_number}"


def _list_columns(row: Mapping[str, Any]) -> list[str]:
    """Return the names of columns, those inside others as ``translation.de``."""
    names = []
    for key, value in row.items():
        names += [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [key]
    return names
