"""Read text files, plain and parallel, with or without gzip. Every error names file and line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, cast, get_args

from clockhands.data.population import Pair
from clockhands.data.splits import Items
from clockhands.errors import DataError, UsageError, describe_unknown
from clockhands.reading import read_text, stream_lines

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
