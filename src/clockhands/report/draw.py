"""Figure -> one static SVG: legible on light and dark, values readable by pointing, equal bytes for equal data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from io import BytesIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.faults import check_figure
from clockhands.report.heat import Heat, colour_bar, draw_heatmap, label_ticks
from clockhands.report.look import Look, Wardrobe
from clockhands.report.marks import Pen, Spot
from clockhands.report.share import share_axes
from clockhands.report.style import rc
from clockhands.report.svg import Target, finish
from clockhands.report.text import visible

DENSE = 5  # columns from which panels are small multiples: shared axes, small type


def draw(figure: Figure, name: str) -> str:
    """The figure as SVG text. ``name`` prefixes every id, so that many figures may stand on one page.

    ``svg.as_file`` makes a file of it. Raises DataError, with the place, if a mark is of unknown kind or contradicts itself.
    """
    check_figure(figure, name)
    with matplotlib.rc_context(rc(name)), warnings.catch_warnings():
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
        self.width = {1: 620.0, 2: 780.0}.get(self.columns, 860.0)
        self.panel_width = self.width / self.columns
        self.wardrobe = Wardrobe(figure)
        self.pens: list[Pen] = []
        self.legend = _legend(figure, self.wardrobe)
        height = self.rows * self._panel_height() + 17 * self._legend_rows() + (14 if self.dense else 0)
        self.canvas = Canvas(figsize=(self.width / 72, height / 72), dpi=72, layout="constrained")
        FigureCanvasSVG(self.canvas)

    def fill(self) -> None:
        """Draw all panels, then what belongs to all of them."""
        gap = 0.02 if self.dense else 0.06
        self.canvas.get_layout_engine().set(w_pad=gap, h_pad=gap, hspace=0.03, wspace=0.02)
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
            ncols = math.ceil(len(labels) / self._legend_rows())
            self.canvas.legend(handles, labels, loc="outside upper left", ncols=ncols, columnspacing=1.6)

    def targets(self) -> list[Target]:
        """Where each value stands on the finished sheet, in points from its top left corner."""
        self.canvas.draw_without_rendering()
        groups = [(pen.ax, group) for pen in self.pens for group in pen.spots if group]
        step = max(1, math.ceil(sum(len(group) for _, group in groups) / 420))
        height = self.canvas.bbox.height
        return [_target(ax, spot, height) for ax, group in groups for spot in group[::step]]

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
        ax.set_title(visible(panel.title), fontsize=7.5 if self.dense else 10, pad=3 if self.dense else 6)
        ax.set_xlabel(visible(panel.xlabel))
        ax.set_ylabel(visible(panel.ylabel))
        _name_ticks(ax, pen, self.panel_width)
        if panel.equal and not any(mark.kind == "heatmap" for mark in panel.marks):
            ax.set_aspect("equal", adjustable="datalim")
        if panel.xlim:
            ax.set_xlim(panel.xlim)
        if panel.ylim:
            ax.set_ylim(panel.ylim)
        if self.dense:
            ax.tick_params(labelsize=7, length=2, pad=1.5)

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

    def _legend_rows(self) -> int:
        if not self.legend:
            return 0
        longest = max(len(label) for label in self.legend) * 5.8 + 44
        return math.ceil(len(self.legend) / max(1, int(self.width // longest)))


def _names_down(panel: Panel) -> float:
    names = {value for mark in panel.marks for value in mark.y if isinstance(value, str)}
    each = 14 if any(mark.kind == "heatmap" for mark in panel.marks) else 19
    return each * len(names) + 46 if len(names) <= 60 else 0.0


def _name_ticks(ax: Axes, pen: Pen, width: float) -> None:
    if pen.x.names:
        longest = max(map(len, pen.x.names))
        upright = longest * 6 * len(pen.x.names) <= width * 0.85
        ax.set_xticks(range(len(pen.x.names)), pen.x.names, **({} if upright else _LEANING))
        ax.grid(False, axis="x")
    if pen.y.names:
        ax.set_yticks(range(len(pen.y.names)), pen.y.names)
        ax.set_ylim(len(pen.y.names) - 0.5, -0.5)
        ax.grid(False, axis="y")


_LEANING = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}


def _legend(figure: Figure, wardrobe: Wardrobe) -> dict[str, Line2D | Patch]:
    """One entry a label; a single label needs none, unless it marks chance."""
    entries: dict[str, Line2D | Patch] = {}
    for panel in figure.panels:
        for mark in panel.marks:
            if mark.label and mark.kind not in ("heatmap", "text"):
                entries.setdefault(visible(mark.label), _HANDLES[mark.kind](wardrobe.look(panel, mark)))
    marks = [mark for panel in figure.panels for mark in panel.marks]
    alone = len(entries) == 1 and len({mark.label for mark in marks}) == 1
    return {} if alone and all(mark.emphasis != "null" for mark in marks) else entries


def _stroke(look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, lw=look.width, ls=look.dash)


def _dot(look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, lw=0, marker=look.marker, ms=5)


_HANDLES: dict[str, Callable[[Look], Line2D | Patch]] = {
    "line": _stroke,
    "hline": _stroke,
    "vline": _stroke,
    "points": _dot,
    "arrows": _stroke,
    "bars": lambda look: Patch(color=look.colour, lw=0),
    "stack": lambda look: Patch(color=look.colour, lw=0),
    "band": lambda look: Patch(color=look.colour, lw=0, alpha=0.3),
}


def _target(ax: Axes, spot: Spot, height: float) -> Target:
    """From data to sheet coordinates, kept inside the panel. An edge that is NaN runs along the whole panel."""
    box = ax.bbox
    (x0, y0), (x1, y1) = ax.transData.transform([(spot.x0, spot.y0), (spot.x1, spot.y1)])
    left, right = (box.x0, box.x1) if math.isnan(spot.x0) else sorted((x0, x1))
    low, high = (box.y0, box.y1) if math.isnan(spot.y0) else sorted((y0, y1))
    left, right = (min(max(edge, box.x0), box.x1) for edge in (left, right))
    low, high = (min(max(edge, box.y0), box.y1) for edge in (low, high))
    return Target(left, height - high, right - left, high - low, spot.text)
