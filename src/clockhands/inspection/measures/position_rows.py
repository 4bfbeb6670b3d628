"""The rows of the position table that the measures of it look at."""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Float, Tensor

MOST_ROWS = 256
"""Rows looked at: those that most texts reach."""
FEWEST_ROWS = 16
"""Rows, besides row 0, without which nothing is measured."""


@dataclass(frozen=True)
class PositionRows:
    """Position rows from the second on, P × D in float64: as the model adds them, and centred."""

    raw_ND: Float[Tensor, "N D"]
    centred_ND: Float[Tensor, "N D"]


def read_rows(subject: Subject, most: int = MOST_ROWS) -> PositionRows | str:
    """Return at most ``most`` rows of the table at the input, or the reason why there is nothing to measure."""
    tables = subject.read_tables()
    if tables is None:
        return subject.explain_absence("There is no position table to look at.")
    count = len(tables.positions_ND)
    if count <= FEWEST_ROWS:
        had = "1 row" if count == 1 else f"{count} rows"
        return f"The position table has {had}; {FEWEST_ROWS + 1} are needed to measure this."
    raw = tables.positions_ND[1 : most + 1].double()
    centred = raw - raw.mean(0)
    if float(centred.norm()) <= 1e-9 * float(raw.norm()):
        return "All position rows are equal: this table tells no position from another."
    return PositionRows(raw, centred)
