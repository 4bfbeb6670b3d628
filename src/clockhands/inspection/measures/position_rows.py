"""The rows of the position table at the input that the measures of that table read."""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

DEFAULT_ROWS = 256
"""Rows that are read unless a measure asks for more: those of the positions that most texts reach."""
FEWEST_ROWS = 16
"""Rows, besides row 0, that a table needs to be measured."""


@dataclass(frozen=True)
class PositionRows:
    """N rows of a position table in float64, from that of position 1 on: as the model adds them, and centred.

    ``centred_ND`` are the rows less their mean; ``added_ND`` are scaled as the model scales them before it adds them.
    """

    added_ND: Float[Tensor, "N D"]
    centred_ND: Float[Tensor, "N D"]

    def compute_cosines(self) -> Float[Tensor, "n n"]:
        """Return the cosines of the first ``DEFAULT_ROWS`` rows less their mean: the one similarity of a page."""
        rows = self.added_ND[:DEFAULT_ROWS]
        return compute_cosines(rows - rows.mean(0))


def compute_cosines(rows_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N N"]:
    """Return the cosine of every pair of rows, as they are."""
    unit_ND = rows_ND / rows_ND.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit_ND @ unit_ND.T


def read_rows(subject: Subject, most: int = DEFAULT_ROWS) -> PositionRows | str:
    """Return at most ``most`` rows of the table at the input, or the reason why there is nothing to measure."""
    tables = subject.read_tables()
    if tables is None:
        return subject.explain_missing_table("There is no position table at the input.")
    count = len(tables.positions_ND)
    if count <= FEWEST_ROWS:
        size = "1 row" if count == 1 else f"{count} rows"
        return f"The position table has {size}; {FEWEST_ROWS + 1} are needed to measure this."
    added_ND = tables.positions_ND[1 : most + 1].double()
    centred_ND = added_ND - added_ND.mean(0)
    if float(centred_ND.norm()) <= 1e-9 * float(added_ND.norm()):
        return "All position rows are equal: this table does not tell one position from another."
    return PositionRows(added_ND, centred_ND)
