"""The kinds of mark, by name: heatmaps and tiles, lines, points, bars, stacks, bands and rules."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Scalar
from clockhands.report.figures.mark_kind import MarkKind, Plot, label_values, list_x
from clockhands.report.figures.palette import DIVERGING, FAINT, GREY, INK, PAPER, SEQUENTIAL, Appearance
from clockhands.report.text import format_number
from clockhands.streams import replace_controls

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
SMALLEST = 10.0
"""Points of the smallest letters: 9 pixels where a figure is drawn for a phone of 360."""


class _Heatmap(MarkKind):
    """``z`` as colours, its first row on top; ``x`` and ``y`` name its columns and rows. Missing cells are hatched."""

    needs: tuple[str, ...] = ("z",)
    owns_axes = True
    row_height = 14.0

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self._images: dict[tuple[str, bool], list[AxesImage]] = defaultdict(list)

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> AxesImage:
        values = _make_array(mark)
        rows, columns = values.shape
        image = plot.ax.imshow(
            values,
            cmap=DIVERGING if mark.diverging else SEQUENTIAL,
            norm=self._make_norm(mark),
            interpolation="none",
            aspect="equal" if plot.panel.equal else "auto",
            extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
        )
        self._images[mark.label, mark.diverging].append(image)
        if np.isnan(values).any():  # the picture is transparent there, as pale as a diverging scale is at 0
            plot.ax.patch.set(hatch="//", edgecolor=GREY, linewidth=0)
        plot.ax.grid(False)
        plot.ax.spines[:].set_visible(True)  # where the palest cells end, on light paper, and the darkest on dark
        plot.ax.tick_params(length=0)
        width, height = plot.width * 0.8, plot.height * 0.75  # of the panel, what its labels leave
        if width / columns >= 26 and height / rows >= 11 and values.size <= 200:
            _write_cells(plot.ax, values, image)
        _name_cells(plot.ax, mark, width, height)
        if values.size <= 1024:
            for row, column in np.ndindex(rows, columns):
                text = self.describe_value(mark, row * columns + column)
                plot.note(text, column - 0.5, row - 0.5, column + 0.5, row + 0.5)
        return image

    def finish(self, canvas: Canvas) -> None:
        """Draw one colour bar beside all panels that share a scale."""
        for (label, _), images in self._images.items():
            axes = [image.axes for image in images]
            bar = canvas.colorbar(images[0], ax=axes, shrink=0.9, aspect=28, pad=0.015, fraction=0.05)
            if bar.solids is not None:
                bar.solids.set_rasterized(True)
            bar.outline.set(edgecolor=FAINT, linewidth=0.8)
            bar.ax.tick_params(length=0, labelsize=SMALLEST)
            bar.ax.grid(False)
            bar.set_label(replace_controls(label), fontsize=10)

    def describe_value(self, mark: Mark, index: int) -> str:
        row, column = divmod(index, len(mark.z[0]))
        down = replace_controls(mark.y[row]) if mark.y else str(row)
        across = replace_controls(mark.x[column]) if mark.x else str(column)
        text = f"{down}, {across}: {format_number(mark.z[row][column])}"
        return f"{replace_controls(mark.names[index])}\n{text}" if mark.names else text

    def check(self, mark: Mark, where: str) -> None:
        widths = {len(row) for row in mark.z}
        if len(widths) != 1 or widths == {0}:
            raise DataError(f"{where} has rows of {sorted(widths)} values in z; it needs rows of one length")
        rows, columns = len(mark.z), widths.pop()
        expected = {"x": columns, "y": rows, "names": rows * columns}
        for name, count in expected.items():
            actual = len(getattr(mark, name))
            if actual not in (0, count):
                raise DataError(f"{where} has {actual} {name} for {rows} rows and {columns} columns; it needs {count}")

    def _make_norm(self, mark: Mark) -> Normalize:
        """Make the colour scale of all heatmaps with the mark's label; zero is in its middle if it diverges."""
        alike = [
            other
            for panel in self.figure.panels
            for other in panel.marks
            if other.kind == mark.kind and (other.label, other.diverging) == (mark.label, mark.diverging)
        ]
        values = np.concatenate([_make_array(other).ravel() for other in alike])
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        if mark.diverging:
            high = max(abs(low), abs(high)) or 1.0
            low = -high
        return Normalize(low, high if high > low else low + 1.0)


class Tiles(_Heatmap):
    """A grid of small heatmaps of one size, put together in ``z``; ``x`` and ``y`` name the columns and rows of tiles.

    ``names`` holds the text of each tile, row by row: one is pointed at as a whole.
    """

    needs = ("x", "y", "z", "names")
    row_height = 22.0

    def draw(self, plot: Plot, mark: Mark, style: Appearance) -> AxesImage:
        values = _make_array(mark)
        look: dict[str, Any] = {"cmap": SEQUENTIAL, "norm": self._make_norm(mark), "interpolation": "none"}
        image = plot.ax.imshow(values, aspect="auto", extent=(0, len(mark.x), len(mark.y), 0), **look)
        self._images[mark.label, mark.diverging].append(image)
        plot.ax.spines[:].set_visible(True)
        plot.ax.tick_params(length=0)
        plot.ax.set_xticks([at + 0.5 for at in range(len(mark.x))], [str(name) for name in mark.x])
        plot.ax.set_yticks([at + 0.5 for at in range(len(mark.y))], [str(name) for name in mark.y])
        plot.ax.grid(False)
        for colour, width in ((PAPER, 2.6), (FAINT, 0.8)):  # one of both is seen beside tiles of any colour
            plot.ax.vlines(range(1, len(mark.x)), 0, len(mark.y), colors=colour, lw=width)
            plot.ax.hlines(range(1, len(mark.y)), 0, len(mark.x), colors=colour, lw=width)
        for index, name in enumerate(mark.names):
            row, column = divmod(index, len(mark.x))
            plot.note(replace_controls(name, lines=True), column, row, column + 1, row + 1)
        return image

    def describe_value(self, mark: Mark, index: int) -> str:
        return replace_controls(mark.names[index], lines=True)

    def check(self, mark: Mark, where: str) -> None:
        for field_name in self.needs:
            if not getattr(mark, field_name):
                raise DataError(f"{where} has no {field_name}; tiles cannot be drawn without it")
        rows, columns = len(mark.z), {len(row) for row in mark.z}
        if len(columns) != 1 or rows % len(mark.y) or max(columns) % len(mark.x):
            raise DataError(
                f"{where} has {rows} rows and {sorted(columns)} columns in z for {len(mark.y)} x {len(mark.x)} tiles; "
                "all tiles must be of one size"
            )
        if len(mark.names) != len(mark.x) * len(mark.y):
            raise DataError(f"{where} has {len(mark.names)} names for {len(mark.x) * len(mark.y)} tiles")


def _make_array(mark: Mark) -> FloatArray:
    """Return ``z`` as an array [rows, columns]; a missing cell is NaN."""
    return np.array([[np.nan if cell is None else cell for cell in row] for row in mark.z], dtype=float)


def _name_cells(ax: Axes, mark: Mark, width: float, height: float) -> None:
    """Write as many of the names of columns and rows as fit, evenly chosen."""
    names = [_format_name(value) for value in mark.x]
    if names:
        longest = max(map(len, names))
        upright = longest * 6.5 + 6 <= width / len(names) or longest <= 3
        step = _choose_step(len(names), width, longest * 6.5 + 8 if upright else 12.0)
        ax.set_xticks(range(0, len(names), step), names[::step], rotation=0 if upright else 90)
    rows = [_format_name(value) for value in mark.y]
    if rows:
        step = _choose_step(len(rows), height, 12.0)
        ax.set_yticks(range(0, len(rows), step), rows[::step])


def _format_name(value: Scalar) -> str:
    """Return the name of a row or column as text."""
    return format_number(value) if not isinstance(value, str) else replace_controls(value)


def _choose_step(count: int, room: float, size: float) -> int:
    """Return n where every n-th name is written: 1, 2, 5, 10 ..., so that numbered ticks stay round."""
    least = count * size / max(room, 1.0)
    return next(step for power in range(9) for step in (10**power, 2 * 10**power, 5 * 10**power) if step >= least)


def _write_cells(ax: Axes, values: FloatArray, image: AxesImage) -> None:
    """Write each value into its cell, light or dark, whichever is read more easily there."""
    largest = float(np.nanmax(np.abs(values)))
    decimals = max(0, 1 - math.floor(math.log10(largest))) if 0 < largest < math.inf else 0
    if decimals > 4:
        return
    colours: FloatArray = image.to_rgba(values)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            text = f"{value:z.{min(decimals, 2)}f}".replace("-", "−")
            colour = choose_text_colour(colours[row, column, :3])
            ax.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=colour)


def choose_text_colour(ground: FloatArray) -> str:
    """Return white or black, whichever contrasts more with a ground of these shares of red, green and blue.

    The contrast is that of WCAG 2.2; at a luminance of 0.179 both have the same, of 4.58.
    """
    linear = np.where(ground <= 0.04045, ground / 12.92, ((ground + 0.055) / 1.055) ** 2.4)
    return "#ffffff" if float(linear @ (0.2126, 0.7152, 0.0722)) < 0.179 else "#000000"


RIM = 1.0
"""Width of the rim of paper around a line or a symbol on an area of colour, in points."""
RIM_ORDER = 2.1
"""Where rims of lines lie: above every area, below every line, so that no rim cuts another line."""


class _LineMark(MarkKind):
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


class _Points(MarkKind):
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


class _Bars(MarkKind):
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


class _StackMark(_Bars):
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
    "line": _LineMark,
    "points": _Points,
    "bars": _Bars,
    "stack": _StackMark,
    "band": _Band,
    "heatmap": _Heatmap,
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
