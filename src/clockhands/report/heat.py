"""Heatmaps: embedded as small pictures, one colour scale for all panels that show the same quantity."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.image import AxesImage

from clockhands.findings import Mark, Scalar
from clockhands.report.hover import Spot, hover
from clockhands.report.style import DIVERGING, SEQUENTIAL
from clockhands.report.text import number, visible

LARGEST = 256  # pixels along a side: finer cells are averaged, the eye and the file gain nothing from more


@dataclass
class Heat:
    """All heatmaps of one figure that share label and kind of scale, hence colours."""

    marks: list[Mark] = field(default_factory=list)
    images: list[AxesImage] = field(default_factory=list)
    axes: list[Axes] = field(default_factory=list)

    def norm(self) -> Normalize:
        values = np.concatenate([grid(mark).ravel() for mark in self.marks])
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
        if self.marks[0].diverging:
            high = max(abs(low), abs(high)) or 1.0
            low = -high
        return Normalize(low, high if high > low else low + 1.0)


def grid(mark: Mark) -> np.ndarray[Any, np.dtype[np.float64]]:
    """``z`` as an array; a missing cell is NaN."""
    return np.array([[np.nan if cell is None else cell for cell in row] for row in mark.z], dtype=float)


def draw_heatmap(ax: Axes, mark: Mark, norm: Normalize, *, equal: bool, cell: float) -> tuple[AxesImage, list[Spot]]:
    """Draw ``z`` with its first row on top. ``cell`` is the width of a cell in points: wide ones carry numbers."""
    values = grid(mark)
    rows, columns = values.shape
    image = ax.imshow(
        _coarse(values),
        cmap=DIVERGING if mark.diverging else SEQUENTIAL,
        norm=norm,
        interpolation="none",
        aspect="equal" if equal else "auto",
        extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if cell >= 26 and values.size <= 200:
        _write_cells(ax, values, image)
    places = range(values.size) if values.size <= 1024 else ()
    spots = [(*divmod(index, columns), hover(mark, index)) for index in places]
    return image, [Spot(col - 0.5, row - 0.5, col + 0.5, row + 0.5, text) for row, col, text in spots]


def colour_bar(canvas: Canvas, heat: Heat) -> None:
    """One bar beside all panels that share the scale."""
    bar = canvas.colorbar(heat.images[0], ax=heat.axes, shrink=0.9, aspect=28, pad=0.015, fraction=0.05)
    if bar.solids is not None:
        bar.solids.set_rasterized(True)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9.5)
    bar.ax.grid(False)
    if heat.marks[0].label:
        bar.set_label(visible(heat.marks[0].label), fontsize=10)


def label_ticks(ax: Axes, mark: Mark, width: float, height: float) -> None:
    """As many of the given names as fit, evenly chosen; numbers of cells where there are none."""
    names = [_name(value) for value in mark.x]
    if names:
        longest = max(map(len, names))
        upright = longest * 6.5 + 6 <= width / len(names) or longest <= 3
        step = _step(len(names), width, longest * 6.5 + 8 if upright else 12.0)
        ax.set_xticks(range(0, len(names), step), names[::step], rotation=0 if upright else 90)
    rows = [_name(value) for value in mark.y]
    if rows:
        step = _step(len(rows), height, 12.0)
        ax.set_yticks(range(0, len(rows), step), rows[::step])


def _name(value: Scalar) -> str:
    return number(value) if not isinstance(value, str) else visible(value)


def _step(count: int, room: float, each: float) -> int:
    """Every how many-th name is written: 1, 2, 5, 10 ... so that numbered ticks stay round."""
    need = count * each / max(room, 1.0)
    return next(step for power in range(9) for step in (10**power, 2 * 10**power, 5 * 10**power) if step >= need)


def _coarse(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    for axis in (0, 1):
        size = values.shape[axis]
        if size > LARGEST:
            edges = np.linspace(0, size, LARGEST + 1).astype(int)[:-1]
            known = np.isfinite(values)
            total = np.add.reduceat(np.where(known, values, 0.0), edges, axis=axis)
            count = np.add.reduceat(known.astype(float), edges, axis=axis)
            values = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return values


def _write_cells(ax: Axes, values: np.ndarray[Any, np.dtype[np.float64]], image: AxesImage) -> None:
    largest = float(np.nanmax(np.abs(values)))
    decimals = max(0, 1 - math.floor(math.log10(largest))) if 0 < largest < math.inf else 0
    if decimals > 4:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            text = f"{value:z.{min(decimals, 2)}f}".replace("-", "−")
            colour = "#ffffff" if dark else "#101010"
            ax.text(column, row, text, ha="center", va="center", fontsize=9, color=colour)
