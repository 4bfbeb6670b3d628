"""The table of a finding: as CSV, and as a page shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from clockhands.findings import Finding, Scalar, Table
from clockhands.findings.csv_text import write_csv
from clockhands.report.text import format_number

SHOWN_ROWS = 200
"""Rows of a table that a page shows."""
PHONE_CHARACTERS = 33
"""Characters that a line of a table has on the narrowest phone; a table that needs more is shown there in blocks."""
LARGEST_CSV = 24_000
"""Characters of a table that the page itself carries as a download; a larger one is only a file beside it."""


def view_table(table: Table) -> dict[str, Any] | None:
    """Return what a page shows of the table; None if it has no rows.

    That is the ``name`` of each of the ``columns``, and whether all its cells are ``numeric``; the first ``rows`` and
    the ``count`` of all; a ``download``, the ``data:`` address of the whole if it is small; and whether a line is too
    ``wide`` for a phone, where each row becomes a block of labelled cells.
    """
    if not table.rows:
        return None
    columns = []
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        numeric = all(isinstance(cell, (int, float, type(None))) and not isinstance(cell, bool) for cell in cells)
        columns.append({"name": name, "numeric": numeric})
    rows, text = table.rows[:SHOWN_ROWS], to_csv(table)
    download = "" if len(text) > LARGEST_CSV else "data:text/csv;charset=utf-8," + quote(text, safe=",.-_:;()/+=*!")
    wide = is_wide(table.columns, rows)
    return {"columns": columns, "rows": rows, "count": len(table.rows), "download": download, "wide": wide}


def is_wide(names: Sequence[str], rows: Sequence[Sequence[Scalar]]) -> bool:
    """Tell whether a table scrolls sideways on a phone: its text breaks between words, its numbers nowhere."""
    needed = 0
    for column in zip(names, *rows, strict=True):
        texts = [re.split(r"[ \n]", cell) if isinstance(cell, str) else [format_number(cell)] for cell in column]
        needed += max(len(part) for parts in texts for part in parts) + 2
    return needed > PHONE_CHARACTERS


def to_csv(table: Table) -> str:
    """Return the table as CSV (RFC 4180), numbers in full precision."""
    return write_csv(table.columns, table.rows)


def read_values(finding: Finding) -> Table:
    """Return the numbers behind the figure of a finding: its table, or what is drawn where it has none."""
    if finding.table.rows or finding.figure is None:
        return finding.table
    rows: list[tuple[Scalar, ...]] = []
    for number, panel in enumerate(finding.figure.panels, 1):
        for mark in panel.marks:
            start = (panel.title or str(number), mark.label)
            if not mark.z:
                drawn = zip_longest(mark.x, mark.y, mark.low, mark.high, mark.names)
                rows += [(*start, x, y, None, low, high, name) for x, y, low, high, name in drawn]
            for row, cells in enumerate(mark.z):
                for column, cell in enumerate(cells):
                    x, y = mark.x[column] if mark.x else column, mark.y[row] if mark.y else row
                    name = mark.names[row * len(cells) + column] if mark.names else None
                    rows.append((*start, x, y, cell, None, None, name))
    return Table(("panel", "what", "x", "y", "value", "low", "high", "name"), tuple(rows))
