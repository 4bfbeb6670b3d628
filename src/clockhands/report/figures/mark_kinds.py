"""The kinds of mark. A new one is a class here, and its line in ``KINDS``."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.patches import Patch

from clockhands.findings import Figure, Mark
from clockhands.report.figures.heatmap import Heatmap, Tiles
from clockhands.report.figures.mark_kind import MarkKind, Plot, label_values, list_x
from clockhands.report.figures.palette import INK, PAPER, Appearance
from clockhands.report.text import format_number

RIM = 1.0
"""Width of the rim of paper around a line or a symbol on an area of colour, in points."""
RIM_ORDER = 2.1
"""Where rims of lines lie: above every area, below every line, so that no rim cuts another line."""


class Line(MarkKind):
    """``y`` over ``x``, with error bars from ``low`` to ``high``; few points get markers."""

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        x, y = plot.locate(mark)
        few = len(x) <= 24 and len(plot.panel.marks) <= 6 and mark.emphasis != "reference"
        marker = style.marker if few else ("o" if len(x) == 1 else "")
        look: dict[str, Any] = {"color": style.colour, "lw": style.width, "ls": style.dash, "ms": 3.6}
        if _has_fills(plot):
            rim: dict[str, Any] = {"color": PAPER, "lw": style.width + 2 * RIM, "ms": 3.6 + 2 * RIM}
            plot.ax.plot(x, y, marker=marker, solid_capstyle="round", zorder=RIM_ORDER, **rim)
        (line,) = plot.ax.plot(x, y, marker=marker, solid_capstyle="round", zorder=2.2, **look)
        _draw_error_bars(plot, mark, style.colour, x, y)
        for index, place in enumerate(zip(x, y, strict=True)):
            plot.note(self.describe_value(mark, index), *place)
        return line


class Points(MarkKind):
    """``y`` over ``x`` as symbols, with error bars from ``low`` to ``high``; hollow where they are a reference."""

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        x, y = plot.locate(mark)
        look: dict[str, Any] = {"color": style.colour, "marker": style.marker, "linewidths": 0}
        if _has_fills(plot):
            look |= {"edgecolors": PAPER, "linewidths": RIM}
        if mark.emphasis == "reference":  # seen on a bar of any colour, too
            look |= {"color": PAPER, "edgecolors": INK, "linewidths": 1.2}
        main = mark.emphasis == "main"  # lies on the others, which would hide it where values agree
        size = 12 if len(x) > 60 else 54 if main else 26
        points = plot.ax.scatter(x, y, s=size, zorder=3.1 if main else 3, **look)
        _draw_error_bars(plot, mark, style.colour, x, y)
        for index, place in enumerate(zip(x, y, strict=True)):
            plot.note(self.describe_value(mark, index), *place)
        return points


class Bars(MarkKind):
    """A bar for each value, with error bars, beside those of other marks; horizontal where ``y`` holds names."""

    fills = True
    edge = 0.0
    """Width of a line of paper around each bar, in points."""

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        group = [other for other in plot.panel.marks if other.kind == mark.kind]
        place = next(index for index, other in enumerate(group) if other is mark)
        thickness = 0.76 * _measure_gap(plot, mark) / len(group)
        return self._draw(plot, mark, style, thickness, (place - (len(group) - 1) / 2) * thickness)

    def find_base(self, plot: Plot, at: float, amount: float) -> float:
        """Return where the bar of ``amount`` at the coordinate ``at`` begins: on the axis."""
        return 0.0

    def _draw(self, plot: Plot, mark: Mark, style: Appearance, thickness: float, shift: float) -> Any:
        x, y = plot.locate(mark)
        places, amounts = (y, x) if plot.sideways else (x, y)
        bases = [self.find_base(plot, at, amount) for at, amount in zip(places, amounts, strict=True)]
        middles = [at + shift for at in places]
        look: dict[str, Any] = {"facecolor": style.colour, "edgecolor": PAPER, "linewidth": self.edge, "zorder": 2}
        if plot.sideways:
            bars = plot.ax.barh(middles, amounts, height=thickness * 0.94, left=bases, **look)
        else:
            bars = plot.ax.bar(middles, amounts, width=thickness * 0.94, bottom=bases, **look)
        _draw_error_bars(plot, mark, INK, middles, middles)
        for index, (at, low, amount) in enumerate(zip(middles, bases, amounts, strict=True)):
            across, along = (at - thickness / 2, at + thickness / 2), (low, low + amount)
            (x0, x1), (y0, y1) = (along, across) if plot.sideways else (across, along)
            plot.note(self.describe_value(mark, index), x0, y0, x1, y1)
        return bars


class Stack(Bars):
    """One layer of stacked bars; negative layers grow downwards. A line of paper parts it from its neighbours."""

    edge = 0.8

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self._tops: dict[tuple[int, float, bool], float] = defaultdict(float)

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        return self._draw(plot, mark, style, 0.76 * _measure_gap(plot, mark), 0.0)

    def find_base(self, plot: Plot, at: float, amount: float) -> float:
        """Return where the layer begins: on top of those drawn before it, and go on from its end."""
        key = (id(plot), at, amount < 0)
        base = self._tops[key]
        self._tops[key] += amount if math.isfinite(amount) else 0.0
        return base


class _Band(MarkKind):
    """The area between ``low`` and ``high``, and a line along both, for a tint alone is hardly seen."""

    needs = ("low", "high")
    neutral = True
    fills = True

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        x, _ = plot.locate(mark)
        several = sum(other.kind == mark.kind for other in plot.panel.marks) > 1
        for edge in (mark.low, mark.high):
            if several:
                plot.ax.plot(x, edge, color=PAPER, lw=0.7 + 2 * RIM, zorder=1.2)
            plot.ax.plot(x, edge, color=style.colour, lw=0.7, zorder=1.3)
        plot.ax.fill_between(x, mark.low, mark.high, color=style.colour, alpha=0.18, linewidth=0)
        return Patch(facecolor=(style.colour, 0.18), edgecolor=style.colour, linewidth=0.7)


class _HLine(MarkKind):
    """Horizontal lines across the whole panel, at each ``y``."""

    neutral = True
    rule = True
    axis: Literal["x", "y"] = "y"
    """The axis of which each line stands at one value."""

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> Any:
        draw = plot.ax.axhline if self.axis == "y" else plot.ax.axvline
        for index, value in enumerate(getattr(mark, self.axis)):
            at = getattr(plot, self.axis)(value)
            if _has_fills(plot):
                draw(at, color=PAPER, lw=style.width + 2 * RIM, zorder=1.4)
            line = draw(at, color=style.colour, lw=style.width, ls=style.dash, zorder=1.5)
            plot.note_line(self.describe_value(mark, index), **{self.axis: at})
        return line

    def describe_value(self, mark: Mark, index: int) -> str:
        return label_values(mark, index, format_number(getattr(mark, self.axis)[index]))


class _VLine(_HLine):
    """Vertical lines from the bottom to the top of the panel, at each ``x``."""

    needs = ("x",)
    axis = "x"


KINDS: dict[str, type[MarkKind]] = {
    "line": Line,
    "points": Points,
    "bars": Bars,
    "stack": Stack,
    "band": _Band,
    "heatmap": Heatmap,
    "tiles": Tiles,
    "hline": _HLine,
    "vline": _VLine,
}


def _has_fills(plot: Plot) -> bool:
    """Tell whether a panel has areas of colour, on which a line or a symbol needs a rim of paper to be seen."""
    return any(KINDS[mark.kind].fills for mark in plot.panel.marks)


def _draw_error_bars(plot: Plot, mark: Mark, colour: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw lines from ``low`` to ``high``, along the axis of the numbers."""
    if mark.low:
        draw = plot.ax.hlines if plot.sideways else plot.ax.vlines
        places = y if plot.sideways else x
        if _has_fills(plot):
            draw(places, mark.low, mark.high, colors=PAPER, lw=1.1 + 2 * RIM, zorder=RIM_ORDER)
        draw(places, mark.low, mark.high, colors=colour, lw=1.1, zorder=4)


def _measure_gap(plot: Plot, mark: Mark) -> float:
    """Return the distance of neighbouring bars: 1 for names, else the smallest between their coordinates."""
    if plot.sideways or plot.x.names:
        return 1.0
    places = sorted({plot.x(value) for value in list_x(mark) if value is not None})
    return min((after - before for before, after in itertools.pairwise(places)), default=1.0)
