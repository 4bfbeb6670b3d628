"""Heatmaps: embedded as small pictures, one colour scale for all panels that show the same quantity."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.image import AxesImage

from clockhands.errors import DataError
from clockhands.findings import Figure, Mark, Scalar
from clockhands.report.figures.mark_kind import MarkKind, Plot
from clockhands.report.figures.palette import DIVERGING, FAINT, GREY, PAPER, SEQUENTIAL, Appearance
from clockhands.report.text import format_number
from clockhands.streams import replace_controls

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
SMALLEST = 10.0
"""Points of the smallest letters: 9 pixels where a figure is drawn for a phone of 360."""


class Heatmap(MarkKind):
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


class Tiles(Heatmap):
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


def _make_array(mark: Mark) -> Values:
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


def _write_cells(ax: Axes, values: Values, image: AxesImage) -> None:
    """Write each value into its cell, light or dark, whichever is read more easily there."""
    largest = float(np.nanmax(np.abs(values)))
    decimals = max(0, 1 - math.floor(math.log10(largest))) if 0 < largest < math.inf else 0
    if decimals > 4:
        return
    colours: Values = image.to_rgba(values)
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            text = f"{value:z.{min(decimals, 2)}f}".replace("-", "−")
            colour = choose_text_colour(colours[row, column, :3])
            ax.text(column, row, text, ha="center", va="center", fontsize=SMALLEST, color=colour)


def choose_text_colour(ground: Values) -> str:
    """Return white or black, whichever contrasts more with a ground of these shares of red, green and blue.

    The contrast is that of WCAG 2.2; at a luminance of 0.179 both have the same, of 4.58.
    """
    linear = np.where(ground <= 0.04045, ground / 12.92, ((ground + 0.055) / 1.055) ** 2.4)
    return "#ffffff" if float(linear @ (0.2126, 0.7152, 0.0722)) < 0.179 else "#000000"
