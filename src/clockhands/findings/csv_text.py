"""Tables as CSV: what a spreadsheet opens, with no cell that it would compute."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

__all__ = ["write_csv"]

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet takes for a formula, or in which it looks for one."""


def write_csv(columns: Sequence[object], rows: Iterable[Sequence[object]], line_end: str = "\r\n") -> str:
    """Return a table as CSV (RFC 4180), numbers in full precision.

    Text that a spreadsheet would compute, such as the name ``=HYPERLINK(...)``, has an apostrophe in front, which
    spreadsheets take for "this is text".
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=line_end)
    writer.writerows([_guard(cell) for cell in row] for row in (columns, *rows))
    return out.getvalue().encode("utf8", "replace").decode("utf8")


def _guard(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
