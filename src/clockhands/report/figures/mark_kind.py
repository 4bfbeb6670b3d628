"""The base class of the kinds of mark: how one is checked, drawn on a panel, and shown when pointed at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Panel, Scalar
from clockhands.report.figures.palette import Appearance
from clockhands.report.text import format_interval, format_number
from clockhands.streams import replace_controls


@dataclass(frozen=True)
class Spot:
    """A place to point at, in data coordinates: a dot (``x0 == x1``, ``y0 == y1``) or a box.

    NaN stands for "from edge to edge of the panel".
    """

    x0: float
    y0: float
    x1: float
    y1: float
    text: str


class Scale:
    """Maps values to coordinates: numbers to themselves; if any is text, all to categories in order of appearance."""

    def __init__(self, values: Iterable[Scalar] = ()) -> None:
        values = list(values)
        categorical = any(isinstance(value, str) for value in values)
        self.names = list(dict.fromkeys(replace_controls(value) for value in values)) if categorical else []
        self._places = {name: float(place) for place, name in enumerate(self.names)}

    def __call__(self, value: Scalar) -> float:
        """Return the coordinate of a value; NaN for None."""
        place = self._places.get(replace_controls(value))
        if place is not None:
            return place
        return math.nan if value is None else float(value)


@dataclass
class Plot:
    """One panel while it is drawn: its axes, where its categories stand, and the spots of each mark."""

    panel: Panel
    x: Scale
    y: Scale
    width: float
    height: float
    spots: list[list[Spot]] = field(default_factory=list)
    handles: dict[int, Any] = field(default_factory=dict)
    """The Matplotlib artist of each mark, by its index in the panel, for the legend."""

    ax: Axes = field(init=False)

    @property
    def sideways(self) -> bool:
        """Whether bars are horizontal: their names stand on the y axis."""
        return bool(self.y.names)

    def locate(self, mark: Mark) -> tuple[list[float], list[float]]:
        """Return the x and the y coordinate of every value."""
        return [self.x(value) for value in list_x(mark)], [self.y(value) for value in mark.y]

    def note(self, text: str, x: float, y: float, *corner: float) -> None:
        """Show ``text`` when a reader points at (x, y), or into the box from there to ``corner``."""
        x1, y1 = corner or (x, y)
        if all(math.isfinite(place) for place in (x, y, x1, y1)):
            self.spots[-1].append(Spot(x, y, x1, y1, text))

    def note_line(self, text: str, x: float = math.nan, y: float = math.nan) -> None:
        """Show ``text`` when a reader points at the line at ``x`` or ``y`` across the whole panel."""
        self.spots[-1].append(Spot(x, y, x, y, text))


class MarkKind:
    """How one kind of mark is checked, drawn and read. An instance serves one figure.

    A subclass implements ``draw`` and sets the class attributes that differ.
    """

    needs: tuple[str, ...] = ("y",)
    """Fields of the mark without which it cannot be drawn."""
    owns_axes = False
    """Whether it makes its own ticks and colours, and takes no part in legends and categories."""
    neutral = False
    """Whether it is grey without a label, and no series of its own."""
    fills = False
    """Whether it colours an area, on which other marks may lie."""
    rule = False
    """Whether it is a line at one value of one axis; a number is then not a category of an axis of names."""
    row_height = 19.0
    """The height that each category on the y axis needs, in points."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        """Draw the mark, note its spots, and return the artist that stands for it in a legend."""
        raise NotImplementedError

    def finish(self, canvas: Canvas) -> None:
        """Draw what belongs to all panels together, such as a colour bar."""

    def describe_value(self, mark: Mark, index: int) -> str:
        """Return the text shown for a value: its name if it has one, its label and its numbers."""
        x = format_number(list_x(mark)[index])
        values = [x, format_number(mark.y[index])] if mark.y else [x]
        if mark.low and mark.high:
            measured = 0 if mark.y and isinstance(mark.y[index], str) else -1
            values[measured] += " " + format_interval((mark.low[index], mark.high[index]))
        return label_values(mark, index, ", ".join(values))

    def check(self, mark: Mark, where: str) -> None:
        """Raise DataError, beginning with ``where``, if the mark cannot be drawn as it is."""
        for field_name in self.needs:
            if not getattr(mark, field_name):
                raise DataError(f"{where} has no {field_name}; a {mark.kind} cannot be drawn without it")
        if bool(mark.low) != bool(mark.high):
            raise DataError(f"{where} has only one of low and high; give both or neither")
        fields = ("x", "y", "low", "high", "names")
        lengths = {name: len(getattr(mark, name)) for name in fields if getattr(mark, name)}
        if not self.rule and len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
            raise DataError(f"{where} has {counts}; there must be equally many of each")
        if _has_text(mark.x) and _has_text(mark.y):
            raise DataError(f"{where} has words on both axes; one of x and y must be numbers")
        if _has_text(mark.low) or _has_text(mark.high):
            raise DataError(f"{where} has words among low and high; they must be numbers")


def list_x(mark: Mark) -> tuple[Scalar, ...]:
    """Return the x values of a mark; 0, 1, 2 ... where it gives none."""
    return mark.x or tuple(range(len(mark.y or mark.low)))


def label_values(mark: Mark, index: int, values: str) -> str:
    """Return ``values`` with the mark's label in front, and the name of the point on a line above."""
    text = f"{replace_controls(mark.label)}: {values}" if mark.label else values
    return f"{replace_controls(mark.names[index])}\n{text}" if mark.names else text


def _has_text(values: Sequence[Scalar]) -> bool:
    """Tell whether any value is text."""
    return any(isinstance(value, str) for value in values)
