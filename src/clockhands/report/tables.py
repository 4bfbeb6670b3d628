"""The table of a finding: as CSV, and as a page shows it."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from urllib.parse import quote

from clockhands.findings import Scalar, Table

SHOWN_ROWS = 200
"""Rows of a table that a page shows."""
LARGEST_CSV = 24_000
"""Characters of a table that the page itself carries as a download; a larger one is only a file beside it."""


@dataclass(frozen=True)
class Column:
    """The name of a column, and whether all its cells are numbers."""

    name: str
    numeric: bool


@dataclass(frozen=True)
class TableView:
    """The first rows of a table, the number of all, and a ``data:`` address of the whole if it is small."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    count: int
    download: str


def view_table(table: Table) -> TableView | None:
    """Return what a page shows of the table; None if it has no rows."""
    if not table.rows:
        return None
    numeric = (all(_is_number(row[index]) for row in table.rows) for index in range(len(table.columns)))
    columns = tuple(Column(name, flag) for name, flag in zip(table.columns, numeric, strict=True))
    return TableView(columns, table.rows[:SHOWN_ROWS], len(table.rows), _make_download(to_csv(table)))


def to_csv(table: Table) -> str:
    """Return the table as CSV (RFC 4180), numbers in full precision."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue().encode("utf8", "replace").decode("utf8")


def _make_download(text: str) -> str:
    """Return the ``data:`` address of a table as CSV; empty for a large one."""
    if len(text) > LARGEST_CSV:
        return ""
    return "data:text/csv;charset=utf-8," + quote(text, safe=",.-_:;()/+=*!")


def _is_number(cell: Scalar) -> bool:
    """Tell whether a cell is a number or empty."""
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))
