"""Figure -> one static SVG: legible on light and dark, values readable by pointing, equal bytes for equal data."""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.faults import check_figure
from clockhands.report.heat import Heat, colour_bar, draw_heatmap, label_ticks
from clockhands.report.hover import Spot
from clockhands.report.legend import LINE, common, entries, lines
from clockhands.report.look import Wardrobe
from clockhands.report.marks import Pen
from clockhands.report.share import share_axes
from clockhands.report.style import rc
from clockhands.report.svg import Target, finish
from clockhands.report.text import number, visible

DENSE = 5  # columns from which panels are small multiples: shared axes, small type


def draw(figure: Figure, name: str) -> str:
    """The figure as SVG text. ``name`` prefixes every id, so that many figures may stand on one page.

    ``svg.as_file`` makes a file of it. Raises DataError, with the
    place, if a mark is of unknown kind or contradicts itself.
    """
    check_figure(figure, name)
    with matplotlib.rc_context(cast(Any, rc(name))), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        sheet = Sheet(figure)
        sheet.fill()
        targets = sheet.targets()
        raw = BytesIO()
        sheet.canvas.savefig(raw, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return finish(raw.getvalue(), name, targets, caption=figure.caption)


class Sheet:
    """One figure being drawn: its size, its axes and what a reader can point at."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.columns = min(figure.columns, len(figure.panels))
        self.rows = math.ceil(len(figure.panels) / self.columns)
        self.dense = self.columns >= DENSE
        self.width = 700.0 if self.columns == 1 else 890.0
        self.panel_width = self.width / self.columns
        self.wardrobe = Wardrobe(figure)
        self.pens: list[Pen] = []
        self.legend = common(figure.panels, self.wardrobe, dense=self.dense)
        height = self.rows * self._panel_height() + LINE * lines(self.legend, self.width) + 14 * self.dense
        self.canvas = Canvas(figsize=(self.width / 72, height / 72), dpi=72, layout=_layout(self.dense))
        FigureCanvasSVG(self.canvas)

    def fill(self) -> None:
        """Draw all panels, then what belongs to all of them."""
        heats = self._heats()
        grid = self.canvas.add_gridspec(self.rows, self.columns)
        for index, panel in enumerate(self.figure.panels):
            ax = self.canvas.add_subplot(grid[divmod(index, self.columns)])
            self.pens.append(Pen(ax, panel, self.wardrobe))
            self._panel(self.pens[-1], heats)
        share_axes(self.canvas, self.pens, self.columns, dense=self.dense)
        for heat in heats.values():
            colour_bar(self.canvas, heat)
        if self.legend:
            handles, labels = list(self.legend.values()), list(self.legend)
            ncols = math.ceil(len(labels) / lines(self.legend, self.width))
            self.canvas.legend(handles, labels, loc="outside upper left", ncols=ncols, columnspacing=1.6)

    def targets(self) -> list[Target]:
        """Where each value stands on the finished sheet, in points from its top left corner."""
        self.canvas.draw_without_rendering()
        self.canvas.set_layout_engine("none")  # it has done its work; saving would do it again
        groups = [(pen.ax, group) for pen in self.pens for group in pen.spots if group]
        step = max(1, math.ceil(sum(len(group) for _, group in groups) / 420))
        height = self.canvas.bbox.height
        placed = (_target(ax, spot, height) for ax, group in groups for spot in group[::step])
        return [target for target in placed if target]

    def _panel(self, pen: Pen, heats: dict[tuple[str, bool], Heat]) -> None:
        panel, ax = pen.panel, pen.ax
        if not panel.marks:
            ax.set_axis_off()
            return
        ax.set(xscale=panel.xscale, yscale=panel.yscale)
        for mark in panel.marks:
            if mark.kind == "heatmap":
                self._heatmap(pen, mark, heats[mark.label, mark.diverging])
            else:
                pen.draw(mark)
        self._dress(pen)

    def _heatmap(self, pen: Pen, mark: Mark, heat: Heat) -> None:
        width, height = self.panel_width * 0.8, self._panel_height() * 0.75
        cell = width / len(mark.z[0]) if height / len(mark.z) >= 11 else 0.0
        image, spots = draw_heatmap(pen.ax, mark, heat.norm(), equal=pen.panel.equal, cell=cell)
        label_ticks(pen.ax, mark, width, height)
        heat.images.append(image)
        heat.axes.append(pen.ax)
        pen.spots.append(spots)

    def _dress(self, pen: Pen) -> None:
        panel, ax = pen.panel, pen.ax
        above = 0.0 if self.legend or self.dense else self._own_legend(pen)
        small = {"pad": 3, "fontsize": 8.5, "fontweight": "normal"} if self.dense else {"pad": 6 + above}
        ax.set_title(visible(panel.title), **small)
        ax.set_xlabel(visible(panel.xlabel))
        ax.set_ylabel(visible(panel.ylabel))
        _plain_numbers(ax, panel)
        _name_ticks(ax, pen, self.panel_width)
        if panel.equal and not any(mark.kind == "heatmap" for mark in panel.marks):
            ax.set_aspect("equal", adjustable="box" if panel.xlim and panel.ylim else "datalim")
        if panel.xlim:
            ax.set_xlim(panel.xlim)
        if panel.ylim:
            ax.set_ylim(panel.ylim)
        if self.dense:
            ax.tick_params(labelsize=8, length=0, pad=1.5)
            ax.grid(False)
            ax.locator_params(nbins=3) if panel.xscale == panel.yscale == "linear" else None

    def _own_legend(self, pen: Pen) -> float:
        """A legend between this panel's title and its data; returns the height it takes."""
        found = entries(pen.panel, self.wardrobe)
        count = lines(found, self.panel_width * 0.85)
        if found:
            ncols = math.ceil(len(found) / count)
            place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.1}
            pen.ax.legend(list(found.values()), list(found), ncols=ncols, columnspacing=1.4, borderpad=0.1, **place)
        return LINE * count

    def _heats(self) -> dict[tuple[str, bool], Heat]:
        heats: dict[tuple[str, bool], Heat] = {}
        for panel in self.figure.panels:
            for mark in panel.marks:
                if mark.kind == "heatmap":
                    heats.setdefault((mark.label, mark.diverging), Heat()).marks.append(mark)
        return heats

    def _panel_height(self) -> float:
        """At least as tall as its names need, when names run down the side."""
        plain = max(self.panel_width * self.figure.height, 34.0)
        if self.dense:
            return plain + 12
        return max(plain, *(_names_down(panel) for panel in self.figure.panels))


def _layout(dense: bool) -> ConstrainedLayoutEngine:
    gap = 0.02 if dense else 0.06
    return ConstrainedLayoutEngine(w_pad=gap, h_pad=gap, hspace=0.03, wspace=0.02)


def _names_down(panel: Panel) -> float:
    names = {value for mark in panel.marks for value in mark.y if isinstance(value, str)}
    each = 14 if any(mark.kind == "heatmap" for mark in panel.marks) else 19
    return each * len(names) + 46.0 if len(names) <= 60 else 0.0


def _name_ticks(ax: Axes, pen: Pen, width: float) -> None:
    if pen.x.names:
        longest = max(map(len, pen.x.names))
        upright = longest * 6.8 * len(pen.x.names) <= width * 0.85
        ax.set_xticks(range(len(pen.x.names)), pen.x.names, **({} if upright else _LEANING))
        ax.grid(False, axis="x")
    if pen.y.names:
        ax.set_yticks(range(len(pen.y.names)), pen.y.names)
        ax.set_ylim(len(pen.y.names) - 0.5, -0.5)
        ax.grid(False, axis="y")


def _plain_numbers(ax: Axes, panel: Panel) -> None:
    """Whole numbers where all are whole, and powers as plain text: Matplotlib's own are mathematical markup."""
    drawn = [mark for mark in panel.marks if mark.kind != "heatmap"]  # whose ticks are its names
    whole = [value for mark in drawn for value in mark.x if isinstance(value, (int, float))]
    if whole and panel.xscale == "linear" and all(float(value).is_integer() for value in whole):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(float(value))))
            axis.set_minor_formatter(NullFormatter())


_LEANING: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}


def _target(ax: Axes, spot: Spot, height: float) -> Target | None:
    """From data to sheet coordinates, kept inside the panel. An edge that is NaN runs along the whole panel."""
    (left, right), (bottom, top) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    x0, x1 = (left, right) if math.isnan(spot.x0) else (spot.x0, spot.x1)
    y0, y1 = (bottom, top) if math.isnan(spot.y0) else (spot.y0, spot.y1)
    if (ax.get_xscale() == "log" and max(x0, x1) <= 0) or (ax.get_yscale() == "log" and max(y0, y1) <= 0):
        return None  # zero has no place on a logarithmic scale
    edges = np.clip(ax.transData.transform([(x0, y0), (x1, y1)]), ax.bbox.min, ax.bbox.max)
    (x, low), (right, high) = edges.min(axis=0).tolist(), edges.max(axis=0).tolist()
    return Target(x, height - high, right - x, high - low, spot.text)
