"""Draws every kind of mark on Matplotlib axes, and notes where its values can be read by pointing at them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from clockhands.findings import Mark, Panel, Scalar
from clockhands.report.hover import Spot, abscissae, hover
from clockhands.report.look import Look, Wardrobe
from clockhands.report.style import FAINT, INK
from clockhands.report.text import number, visible

NAN = float("nan")


class Scale:
    """Numbers stay where they are; if any value is a word, all values become categories in order of appearance."""

    def __init__(self, values: Iterable[Scalar]) -> None:
        values = list(values)
        worded = any(isinstance(value, str) for value in values)
        self.names = list(dict.fromkeys(visible(value) for value in values)) if worded else []
        self._places = {name: float(place) for place, name in enumerate(self.names)}

    def __call__(self, value: Scalar) -> float:
        place = self._places.get(visible(value))
        if place is not None:
            return place
        return NAN if value is None else float(value)


@dataclass
class Pen:
    """Everything a mark needs to be drawn on one pair of axes."""

    ax: Axes
    panel: Panel
    wardrobe: Wardrobe
    x: Scale = field(init=False)
    y: Scale = field(init=False)
    spots: list[list[Spot]] = field(default_factory=list)
    _piles: dict[tuple[float, bool], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        marks = [mark for mark in self.panel.marks if mark.kind != "heatmap"]
        self.x = Scale(value for mark in marks for value in abscissae(mark) if _spans(mark, value))
        self.y = Scale(value for mark in marks for value in mark.y if _spans(mark, value))

    @property
    def sideways(self) -> bool:
        """Bars lie when their names stand on the y axis."""
        return bool(self.y.names)

    def draw(self, mark: Mark) -> None:
        self.spots.append([])
        DRAW[mark.kind](self, mark, self.wardrobe.look(self.panel, mark))

    def note(self, mark: Mark, index: int, x: float, y: float, *corner: float) -> None:
        """Let a reader point at (x, y), or at the box from there to ``corner``."""
        x1, y1 = corner or (x, y)
        if all(math.isfinite(place) for place in (x, y, x1, y1)):
            self.spots[-1].append(Spot(x, y, x1, y1, hover(mark, index)))

    def pile(self, at: float, amount: float) -> float:
        """Where the next layer of a stack begins; negative layers grow downwards."""
        key = (at, amount < 0)
        base = self._piles.get(key, 0.0)
        self._piles[key] = base + (amount if math.isfinite(amount) else 0.0)
        return base


def _spans(mark: Mark, value: Scalar) -> bool:
    """Whether a value takes part in making an axis: a rule or a note at a number is no category."""
    return isinstance(value, str) or mark.kind not in ("hline", "vline", "text")


def _line(pen: Pen, mark: Mark, look: Look) -> None:
    x, y = [pen.x(value) for value in abscissae(mark)], [pen.y(value) for value in mark.y]
    few = len(x) <= 24 and len(pen.panel.marks) <= 6 and mark.emphasis != "null"
    marker = look.marker if few else ("o" if len(x) == 1 else "")
    style: dict[str, Any] = {"color": look.colour, "lw": look.width, "ls": look.dash, "ms": 3.6}
    pen.ax.plot(x, y, marker=marker, solid_capstyle="round", **style)
    _whiskers(pen, mark, look, x, y)
    for index, place in enumerate(zip(x, y, strict=True)):
        pen.note(mark, index, *place)


def _points(pen: Pen, mark: Mark, look: Look) -> None:
    x, y = [pen.x(value) for value in abscissae(mark)], [pen.y(value) for value in mark.y]
    size = 30 if len(x) <= 60 else 12
    pen.ax.scatter(x, y, s=size, color=look.colour, marker=look.marker, linewidths=0, alpha=0.9, zorder=3)
    _whiskers(pen, mark, look, x, y)
    for index, place in enumerate(zip(x, y, strict=True)):
        pen.note(mark, index, *place)


def _whiskers(pen: Pen, mark: Mark, look: Look, x: Sequence[float], y: Sequence[float]) -> None:
    """Error bars from ``low`` to ``high``, along the axis of the numbers."""
    if not mark.low:
        return
    style: dict[str, Any] = {"colors": INK if mark.kind == "bars" else look.colour, "lw": 1.1, "zorder": 4}
    if pen.sideways:
        pen.ax.hlines(y, mark.low, mark.high, **style)
    else:
        pen.ax.vlines(x, mark.low, mark.high, **style)


def _bars(pen: Pen, mark: Mark, look: Look) -> None:
    group = [other for other in pen.panel.marks if other.kind == "bars"]
    place = next(index for index, other in enumerate(group) if other is mark)
    thickness = 0.76 * _gap(pen, mark) / len(group)
    shift = (place - (len(group) - 1) / 2) * thickness
    _blocks(pen, mark, look, thickness, shift, lambda at, amount: 0.0)


def _stack(pen: Pen, mark: Mark, look: Look) -> None:
    _blocks(pen, mark, look, 0.76 * _gap(pen, mark), 0.0, pen.pile)


def _gap(pen: Pen, mark: Mark) -> float:
    """The distance of neighbouring bars: 1 for names, else the smallest between their places."""
    if pen.sideways or pen.x.names:
        return 1.0
    places = sorted({pen.x(value) for value in abscissae(mark) if value is not None})
    return min((after - before for before, after in itertools.pairwise(places)), default=1.0)


def _blocks(
    pen: Pen, mark: Mark, look: Look, thickness: float, shift: float, base: Callable[[float, float], float]
) -> None:
    x, y = [pen.x(value) for value in abscissae(mark)], [pen.y(value) for value in mark.y]
    places, amounts = (y, x) if pen.sideways else (x, y)
    bases = [base(at, amount) for at, amount in zip(places, amounts, strict=True)]
    middles = [at + shift for at in places]
    style: dict[str, Any] = {"color": look.colour, "linewidth": 0, "zorder": 2}
    if pen.sideways:
        pen.ax.barh(middles, amounts, height=thickness * 0.94, left=bases, **style)
        _whiskers(pen, mark, look, [], middles)
    else:
        pen.ax.bar(middles, amounts, width=thickness * 0.94, bottom=bases, **style)
        _whiskers(pen, mark, look, middles, [])
    for index, (at, low, amount) in enumerate(zip(middles, bases, amounts, strict=True)):
        across, along = (at - thickness / 2, at + thickness / 2), (low, low + amount)
        (x0, x1), (y0, y1) = (along, across) if pen.sideways else (across, along)
        pen.note(mark, index, x0, y0, x1, y1)


def _band(pen: Pen, mark: Mark, look: Look) -> None:
    x = [pen.x(value) for value in abscissae(mark)]
    pen.ax.fill_between(x, mark.low, mark.high, color=look.colour, alpha=0.18, linewidth=0)


def _hline(pen: Pen, mark: Mark, look: Look) -> None:
    for index, value in enumerate(mark.y):
        at = pen.y(value)
        pen.ax.axhline(at, color=look.colour, lw=look.width, ls=look.dash, zorder=1.5)
        pen.spots[-1].append(_rule(pen, mark, index, (NAN, at)))


def _vline(pen: Pen, mark: Mark, look: Look) -> None:
    for index, value in enumerate(mark.x):
        at = pen.x(value)
        pen.ax.axvline(at, color=look.colour, lw=look.width, ls=look.dash, zorder=1.5)
        pen.spots[-1].append(_rule(pen, mark, index, (at, NAN)))


def _rule(pen: Pen, mark: Mark, index: int, at: tuple[float, float]) -> Spot:
    """A line across the whole panel: NaN stands for "from edge to edge"."""
    value = number(mark.y[index] if mark.kind == "hline" else mark.x[index])
    text = f"{visible(mark.label)}: {value}" if mark.label else value
    if mark.names:
        text = f"{visible(mark.names[index])}\n{text}"
    return Spot(*at, *at, text)


def _arrows(pen: Pen, mark: Mark, look: Look) -> None:
    x, y = [pen.x(value) for value in mark.x], [pen.y(value) for value in mark.y]
    zeros = np.zeros(len(x))
    style: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.006, "color": look.colour}
    pen.ax.quiver(zeros, zeros, x, y, zorder=3, **style)
    pen.ax.update_datalim(np.array([(0.0, 0.0), *zip(x, y, strict=True)]))
    pen.ax.autoscale_view()
    for index, place in enumerate(zip(x, y, strict=True)):
        pen.note(mark, index, *place)


def _text(pen: Pen, mark: Mark, look: Look) -> None:
    colour = FAINT if mark.emphasis == "null" else INK
    for x, y, name in zip(mark.x, mark.y, mark.names, strict=True):
        place = (pen.x(x), pen.y(y))
        pen.ax.annotate(visible(name), place, color=colour, fontsize=10, xytext=(3, 3), textcoords="offset points")
        pen.ax.update_datalim([place])
    pen.ax.autoscale_view()


Drawer: TypeAlias = Callable[[Pen, Mark, Look], None]
DRAW: dict[str, Drawer] = {
    "line": _line,
    "points": _points,
    "bars": _bars,
    "stack": _stack,
    "band": _band,
    "hline": _hline,
    "vline": _vline,
    "arrows": _arrows,
    "text": _text,
}
