"""The table of a finding: as CSV, and as a page shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from urllib.parse import quote

from clockhands.findings import Finding, Mark, Scalar, Table
from clockhands.findings.csv_text import write_csv
from clockhands.report.text import format_number

SHOWN_ROWS = 200
"""Rows of a table that a page shows."""
PHONE_CHARACTERS = 33
"""Characters that a line of a table has on the narrowest phone; a table that needs more is shown there in blocks."""
LARGEST_CSV = 24_000
"""Characters of a table that the page itself carries as a download; a larger one is only a file beside it."""


@dataclass(frozen=True)
class _Column:
    """The name of a column, and whether all its cells are numbers."""

    name: str
    numeric: bool


@dataclass(frozen=True)
class TableView:
    """The first rows of a table, the number of all, and a ``data:`` address of the whole if it is small.

    ``wide``: whether a line of it is too long for a phone, where each row then becomes a block of labelled cells.
    """

    columns: tuple[_Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    count: int
    download: str
    wide: bool


def view_table(table: Table) -> TableView | None:
    """Return what a page shows of the table; None if it has no rows."""
    if not table.rows:
        return None
    numeric = (
        all(cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool)) for cell in cells)
        for cells in zip(*table.rows, strict=True)
    )
    columns = tuple(_Column(name, flag) for name, flag in zip(table.columns, numeric, strict=True))
    rows, text = table.rows[:SHOWN_ROWS], to_csv(table)
    download = "" if len(text) > LARGEST_CSV else "data:text/csv;charset=utf-8," + quote(text, safe=",.-_:;()/+=*!")
    return TableView(columns, rows, len(table.rows), download, is_wide(table.columns, rows))


def is_wide(names: Sequence[str], rows: Sequence[Sequence[Scalar]]) -> bool:
    """Tell whether a table scrolls sideways on a phone: its text breaks between words, its numbers nowhere."""
    cells = zip(names, *rows, strict=True)
    needed = [max(len(part) for cell in column for part in _split(cell)) + 2 for column in cells]
    return sum(needed) > PHONE_CHARACTERS


def _split(cell: Scalar) -> list[str]:
    """Return the parts of a cell between which a line may end."""
    return re.split(r"[ \n]", cell) if isinstance(cell, str) else [format_number(cell)]


def to_csv(table: Table) -> str:
    """Return the table as CSV (RFC 4180), numbers in full precision."""
    return write_csv(table.columns, table.rows)


def read_values(finding: Finding) -> Table:
    """Return the numbers behind the figure of a finding: its table, or what is drawn where it has none."""
    if finding.table.rows or finding.figure is None:
        return finding.table
    rows = [
        (panel.title or str(number), mark.label, *values)
        for number, panel in enumerate(finding.figure.panels, 1)
        for mark in panel.marks
        for values in _list_values(mark)
    ]
    return Table(("panel", "what", "x", "y", "value", "low", "high", "name"), tuple(rows))


def _list_values(mark: Mark) -> Iterator[tuple[Scalar, ...]]:
    """Yield x, y, the value of a cell, low, high and name of everything that a mark draws."""
    if mark.z:
        for row, cells in enumerate(mark.z):
            for column, cell in enumerate(cells):
                x, y = (names[at] if names else at for names, at in ((mark.x, column), (mark.y, row)))
                yield x, y, cell, None, None, mark.names[row * len(cells) + column] if mark.names else None
        return
    for x, y, low, high, name in zip_longest(mark.x, mark.y, mark.low, mark.high, mark.names):
        yield x, y, None, low, high, name
