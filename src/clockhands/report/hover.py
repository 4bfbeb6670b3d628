"""What a reader is told when pointing at a value."""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.findings import Mark, Scalar
from clockhands.report.text import number, span, visible


@dataclass(frozen=True)
class Spot:
    """A place to point at, in data coordinates: a dot (``x0 == x1``, ``y0 == y1``) or a box."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str


def abscissae(mark: Mark) -> tuple[Scalar, ...]:
    """The x values; places 0, 1, 2 ... when a mark gives none."""
    if mark.x or mark.kind in ("hline", "heatmap"):
        return mark.x
    return tuple(range(len(mark.y or mark.low)))


def hover(mark: Mark, index: int) -> str:
    """The name of a point if it has one, and its values."""
    parts = [visible(mark.names[index])] if mark.names else []
    if mark.kind == "heatmap":
        return _cell_text(mark, index, parts)
    x = number(abscissae(mark)[index])
    values = [x, number(mark.y[index])] if mark.y else [x]
    if mark.low and mark.high:
        measured = 0 if mark.y and isinstance(mark.y[index], str) else -1
        values[measured] += " " + span((mark.low[index], mark.high[index]))
    values_text = ", ".join(values)
    parts.append(f"{visible(mark.label)}: {values_text}" if mark.label else values_text)
    return "\n".join(parts)


def _cell_text(mark: Mark, index: int, parts: list[str]) -> str:
    row, column = divmod(index, len(mark.z[0]))
    down = visible(mark.y[row]) if mark.y else str(row)
    across = visible(mark.x[column]) if mark.x else str(column)
    return "\n".join([*parts, f"{down}, {across}: {number(mark.z[row][column])}"])
