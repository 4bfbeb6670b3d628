"""Draw a figure as one static SVG: legible on light and dark, values shown on hover, equal bytes for equal data."""

from __future__ import annotations

import itertools
import math
import textwrap
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from typing import Any, Literal, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from clockhands.errors import DataError, describe_unknown
from clockhands.findings import Figure, Mark, Panel, Scalar
from clockhands.report.figures.mark_kind import Plot, Scale, Spot, list_x
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.report.figures.palette import (
    DASHES,
    GREY,
    GREY_DASHES,
    MARKERS,
    RAMP,
    SERIES,
    Appearance,
    make_settings,
)
from clockhands.report.figures.svg import Target, finish
from clockhands.report.text import format_number, scale_unit
from clockhands.streams import replace_controls

LETTER = 6.8
"""About how wide a letter of a title or a label is, in points."""
SLOPE = 3.4
"""By how much each letter of a slanted name lies lower than the last, in points."""


def _measure_side(panel: Panel) -> float:
    """Return about how wide the ticks beside a panel are, with its label, in points."""
    names = [replace_controls(value) for mark in panel.marks for value in mark.y if isinstance(value, str)]
    return 30.0 + LETTER * max(4, *map(len, names)) if names else 60.0


def _break_lines(text: str, room: float) -> str:
    """Return a title or a label in lines that are at most ``room`` points long."""
    return textwrap.fill(replace_controls(text), max(8, int(room / LETTER)), break_on_hyphens=False)


def _measure_broken_lines(panel: Panel, width: float) -> float:
    """Return the height of all lines of title and label but the first of each, in points."""
    across = width - _measure_side(panel)
    return 14.0 * sum(_break_lines(text, across).count("\n") for text in (panel.title, panel.xlabel))


def measure_names(panel: Panel) -> float:
    """Return the height that the names along the side of a panel need, in points."""
    names = {value for mark in panel.marks for value in mark.y if isinstance(value, str)}
    size = min((KINDS[mark.kind].row_height for mark in panel.marks), default=0.0)
    return size * len(names) + 46.0 if len(names) <= 60 else 0.0


def _measure_slant(panel: Panel, width: float) -> float:
    """Return the height that names below a panel need where they are slanted, in points."""
    marks = [mark for mark in panel.marks if not KINDS[mark.kind].owns_axes]
    names = {value for mark in marks for value in list_x(mark) if isinstance(value, str)}
    return 0.0 if _fit_upright(names, width) else SLOPE * max(map(len, names))


def _fit_upright(names: Collection[str], width: float) -> bool:
    """Tell whether names fit side by side below a panel of this width."""
    return max(map(len, names), default=0) * LETTER * len(names) <= width * 0.85


LINE = 17.0
"""The height of one line of a legend, in points."""


def _list_labels(plot: Plot) -> dict[str, int]:
    """Return each label with the index of the first mark that has it. A lone label is left out, but for a reference."""
    marks = [(index, mark) for index, mark in enumerate(plot.panel.marks) if not KINDS[mark.kind].owns_axes]
    labelled = [(index, mark) for index, mark in marks if mark.label]
    alone = len({mark.label for _, mark in labelled}) == 1 and all(mark.emphasis != "reference" for _, mark in labelled)
    if alone and not any(not mark.label and not KINDS[mark.kind].neutral for _, mark in marks):
        return {}
    # The main mark first, references last, areas after the lines of their label.
    ranks = {"main": 0, "": 1, "reference": 2}
    labelled.sort(key=lambda entry: (ranks[entry[1].emphasis], KINDS[entry[1].kind].neutral))
    entries: dict[str, int] = {}
    for index, mark in labelled:
        entries.setdefault(replace_controls(mark.label), index)
    return entries


def _find_common_labels(plots: Sequence[Plot]) -> list[str]:
    """Return the labels of all panels together, if one legend can serve them; otherwise nothing."""
    sets = [_list_labels(plot) for plot in plots if plot.panel.marks]
    return list(sets[0]) if sets and all(set(other) == set(sets[0]) for other in sets) else []


def _count_lines(names: Sequence[str], width: float) -> int:
    """Return how many lines the entries take at this width, in points."""
    if not names:
        return 0
    longest = max(map(len, names)) * 6.5 + 42
    return math.ceil(len(names) / max(1, int(width // longest)))


def _draw_legend(owner: Any, plots: Sequence[Plot], names: Sequence[str], width: float, **place: Any) -> None:
    """Draw the entries on ``owner``, axes or a whole figure, in as many columns as fit."""
    handles = {name: plot.handles[index] for plot in plots for name, index in _list_labels(plot).items()}
    columns = math.ceil(len(names) / _count_lines(names, width))
    owner.legend([handles[name] for name in names], list(names), ncols=columns, columnspacing=1.5, **place)


Axis = Literal["x", "y"]


def _is_shared(plots: Sequence[Plot], axis: Axis) -> bool:
    """Tell whether all panels have one label, scale, set of categories, limits and size of heatmaps on this axis."""
    drawn = [plot for plot in plots if plot.panel.marks]
    if len(drawn) < 2 or any(plot.panel.equal for plot in drawn):
        return False
    settings = set()
    for plot in drawn:
        maps = [mark.z for mark in plot.panel.marks if KINDS[mark.kind].owns_axes]
        of_panel = [getattr(plot.panel, f"{axis}{name}") for name in ("label", "scale", "lim")]
        sizes = tuple(len(z[0] if axis == "x" else z) for z in maps)
        settings.add((*of_panel, tuple(getattr(plot, axis).names), sizes))
    return len(settings) == 1 and bool(getattr(drawn[0].panel, f"{axis}label"))


def _label_outer(plots: Sequence[Plot], columns: int, axis: Axis) -> None:
    """Leave names and numbers of a shared axis to the lowest panel of each column or the first of each row."""
    for index, plot in enumerate(plots):
        below = index + columns
        if axis == "x" and below < len(plots) and plots[below].panel.marks:
            plot.ax.tick_params(labelbottom=False)
            plot.ax.set_xlabel("")
        if axis == "y" and index % columns:
            plot.ax.tick_params(labelleft=False)
            plot.ax.set_ylabel("")


def _choose_appearances(figure: Figure) -> list[list[Appearance]]:
    """Return how each mark of each panel looks: references grey and dashed, the main mark heavy, in the first colour.

    A label has one appearance in the whole figure; a mark without one is told from the others of its panel.
    """
    # No label begins with the character in front of a place.
    keys = [[mark.label or f"\0{place}" for place, mark in enumerate(panel.marks)] for panel in figure.panels]
    numbers: dict[bool, dict[str, int]] = {False: {}, True: {}}
    for reference, by_key in numbers.items():
        together = []
        for panel, names in zip(figure.panels, keys, strict=True):
            marks = [
                (mark.emphasis != "main", key)
                for mark, key in zip(panel.marks, names, strict=True)
                if (mark.emphasis == "reference") == reference
                and not KINDS[mark.kind].owns_axes
                and (mark.label or not KINDS[mark.kind].neutral)  # a neutral one has a colour where it has a label
            ]
            together.append([key for _, key in sorted(marks, key=lambda entry: entry[0])])
        # Each key gets the first number that no key in the same panel has.
        for key in dict.fromkeys(itertools.chain.from_iterable(together)):
            taken = {by_key.get(other) for panel_keys in together if key in panel_keys for other in panel_keys}
            by_key[key] = next(number for number in itertools.count() if number not in taken)
    series, references = numbers[False], numbers[True]
    total = 1 + max(series.values(), default=0)

    def choose(mark: Mark, key: str) -> Appearance:
        if mark.emphasis == "reference":
            return Appearance(GREY, dash=GREY_DASHES[references.get(key, 0) % len(GREY_DASHES)], width=1.3)
        if key not in series:
            return Appearance(GREY)
        index = series[key]
        if total <= len(SERIES):
            style = Appearance(SERIES[index], MARKERS[index], DASHES[index % len(DASHES)] if total > 3 else "-")
        else:  # of many series each is a step of a ramp
            step = round(index * (len(RAMP) - 1) / (total - 1))
            style = Appearance(RAMP[step], MARKERS[index % len(MARKERS)], DASHES[index % 2], width=1.2)
        return replace(style, width=2.4, dash="-") if mark.emphasis == "main" else style

    return [
        [choose(mark, key) for mark, key in zip(panel.marks, names, strict=True)]
        for panel, names in zip(figure.panels, keys, strict=True)
    ]


MOST_COLUMNS = 2
"""Panels side by side, at most: of a figure with three or four columns, two."""
WIDTH = 342.0
"""Width of every drawing, in points. One drawing serves a page, a phone and print, by its scale: its letters of 11.5
points are 8 points high in one column of a journal (84 mm), and 17 pixels on a page."""
PREVIEW_WIDTH = 1200
"""Pixels of the width of a preview; what shows links asks for as many."""
MOST_TARGETS = 420
"""Places to point at in one figure, at most."""
_SLANTED: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}


def draw(figure: Figure, name: str, *, alternative: str = "") -> str:
    """Return the figure as SVG text. ``name`` prefixes every id, so that many figures may stand on one page.

    ``alternative`` is read to who cannot see the figure (default: its caption). ``make_file`` makes a file of it.
    Raises DataError, with the place, if a mark is of an unknown kind or contradicts itself.
    """
    with _fill_sheet(figure, name) as sheet:
        raw = sheet.print_svg()
        targets = sheet.list_targets(MOST_TARGETS)
    return finish(raw, name, targets, alternative=alternative or figure.caption)


def draw_preview(figure: Figure, name: str) -> bytes:
    """Return the figure as PNG on white, 1,200 pixels wide: the picture that stands beside a link to its page.

    Raises what ``draw`` raises.
    """
    raw = BytesIO()
    with _fill_sheet(figure, name) as sheet:
        sheet.canvas.savefig(
            raw, format="png", facecolor="white", dpi=72 * PREVIEW_WIDTH / WIDTH, metadata={"Software": None}
        )
    return raw.getvalue()


@contextmanager
def _fill_sheet(figure: Figure, name: str) -> Iterator[Sheet]:
    """Yield the drawn figure, under the settings in which it is printed."""
    check_figure(figure, name)
    with matplotlib.rc_context(cast(Any, make_settings(name))), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        sheet = Sheet(show_percent(figure))
        sheet.fill()
        yield sheet


class Sheet:
    """One figure while it is drawn: its size, its panels and what a reader can point at."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.columns = math.ceil(min(figure.columns, len(figure.panels), 2 * MOST_COLUMNS) / 2)
        self.rows = math.ceil(len(figure.panels) / self.columns)
        self.kinds = {name: kind(figure) for name, kind in KINDS.items()}
        self.looks = _choose_appearances(figure)
        width = WIDTH / self.columns
        # A flat panel would be all labels.
        shape = max(figure.height, min(0.65, 1.6 * figure.height))
        height = max(width * shape, 34.0, *(measure_names(panel) for panel in figure.panels))
        height += max(_measure_broken_lines(panel, width) + _measure_slant(panel, width) for panel in figure.panels)
        self.plots = [Plot(panel, *_make_scales(panel), width, height) for panel in figure.panels]
        self.legend = _find_common_labels(self.plots)
        total = self.rows * height + LINE * _count_lines(self.legend, WIDTH)
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, hspace=0.03, wspace=0.02)
        self.canvas = Canvas(figsize=(WIDTH / 72, total / 72), dpi=72, layout=layout, facecolor="none")

    def fill(self) -> None:
        """Draw all panels, then what belongs to all of them."""
        axes: tuple[Axis, Axis] = ("x", "y")
        shared = [axis for axis in axes if _is_shared(self.plots, axis)]
        grid = self.canvas.add_gridspec(self.rows, self.columns)
        first: Axes | None = None
        for index, plot in enumerate(self.plots):
            joined: dict[str, Any] = {f"share{axis}": first for axis in shared if plot.panel.marks}
            plot.ax = self.canvas.add_subplot(grid[divmod(index, self.columns)], **joined)
            first = first or (plot.ax if plot.panel.marks else None)
            self._draw_panel(plot, self.looks[index])
        for axis in shared:
            _label_outer(self.plots, self.columns, axis)
        for kind in self.kinds.values():
            kind.finish(self.canvas)
        if self.legend:
            _draw_legend(self.canvas, self.plots, self.legend, WIDTH, loc="outside upper left")

    def print_svg(self) -> bytes:
        """Lay the sheet out and return it as SVG. ``savefig`` would draw all of it once more, to measure it."""
        raw = BytesIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        FigureCanvasSVG(self.canvas).print_svg(raw, metadata=metadata)
        return raw.getvalue()

    def list_targets(self, most: int) -> list[Target]:
        """Return where values stand on the printed sheet, at most so many, in points from its top left corner."""
        groups = [(plot.ax, group) for plot in self.plots for group in plot.spots if group]
        step = max(1, math.ceil(sum(len(group) for _, group in groups) / most))
        height = self.canvas.bbox.height
        placed = (_make_target(ax, spot, height) for ax, group in groups for spot in group[::step])
        return [target for target in placed if target]

    def _draw_panel(self, plot: Plot, looks: Sequence[Appearance]) -> None:
        """Draw the marks of one panel, its labels and its ticks; an empty panel has no axes."""
        panel, ax = plot.panel, plot.ax
        if not panel.marks:
            ax.set_axis_off()
            return
        ax.set(xscale=panel.xscale, yscale=panel.yscale)
        for index, (mark, look) in enumerate(zip(panel.marks, looks, strict=True)):
            plot.spots.append([])
            plot.handles[index] = self.kinds[mark.kind].draw(plot, mark, look)
        above = 0.0 if self.legend else _draw_own_legend(plot)
        across = plot.width - _measure_side(panel)
        ax.set_title(_break_lines(panel.title, across), pad=6 + above)
        ax.set_xlabel(_break_lines(panel.xlabel, across))
        ax.set_ylabel(_break_lines(panel.ylabel, (plot.height - _measure_slant(panel, plot.width)) * 0.8))
        _set_ticks(plot)
        if panel.equal and not any(KINDS[mark.kind].owns_axes for mark in panel.marks):
            ax.set_aspect("equal", adjustable="box" if panel.xlim and panel.ylim else "datalim")
        if panel.xlim:
            ax.set_xlim(panel.xlim)
        if panel.ylim:
            ax.set_ylim(panel.ylim)


def _make_scales(panel: Panel) -> tuple[Scale, Scale]:
    """Make the scales of x and y; the number at which a horizontal or vertical line stands is not a category."""
    marks = [mark for mark in panel.marks if not KINDS[mark.kind].owns_axes]
    across = [(mark, value) for mark in marks for value in (mark.x if KINDS[mark.kind].rule else list_x(mark))]
    down = [(mark, value) for mark in marks for value in mark.y]
    x, y = (
        Scale(value for mark, value in values if isinstance(value, str) or not KINDS[mark.kind].rule)
        for values in (across, down)
    )
    return x, y


def _draw_own_legend(plot: Plot) -> float:
    """Draw a legend between the panel's title and its data; return the height it takes."""
    names, width = list(_list_labels(plot)), plot.width * 0.85
    if names:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.1}
        _draw_legend(plot.ax, [plot], names, width, borderpad=0.1, **place)
    return LINE * _count_lines(names, width)


def _set_ticks(plot: Plot) -> None:
    """Write the categories of a panel at its ticks, slanted where they do not fit side by side, and its numbers.

    These are whole where all are whole, and powers are plain text: Matplotlib's own are markup.
    """
    ax, panel, across, down = plot.ax, plot.panel, plot.x.names, plot.y.names
    drawn = [mark for mark in panel.marks if not KINDS[mark.kind].owns_axes]
    numbers = [value for mark in drawn for value in mark.x if isinstance(value, (int, float))]
    if numbers and panel.xscale == "linear" and all(float(value).is_integer() for value in numbers):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(float(value))))
            axis.set_minor_formatter(NullFormatter())
    if across:
        ax.set_xticks(range(len(across)), across, **({} if _fit_upright(across, plot.width) else _SLANTED))
        ax.grid(False, axis="x")
    if down:
        ax.set_yticks(range(len(down)), down)
        ax.set_ylim(len(down) - 0.5, -0.5)
        ax.grid(False, axis="y")


def _make_target(ax: Axes, spot: Spot, height: float) -> Target | None:
    """Return the place of a spot on the sheet, cut to its panel; None where a logarithmic scale has no such place."""
    (left, right), (bottom, top) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    x0, x1 = (left, right) if math.isnan(spot.x0) else (spot.x0, spot.x1)
    y0, y1 = (bottom, top) if math.isnan(spot.y0) else (spot.y0, spot.y1)
    if (ax.get_xscale() == "log" and max(x0, x1) <= 0) or (ax.get_yscale() == "log" and max(y0, y1) <= 0):
        return None  # zero has no place on a logarithmic scale
    edges = np.clip(ax.transData.transform([(x0, y0), (x1, y1)]), ax.bbox.min, ax.bbox.max)
    (x, low), (right, high) = edges.min(axis=0).tolist(), edges.max(axis=0).tolist()
    return Target(x, height - high, right - x, high - low, spot.text)


def show_percent(figure: Figure) -> Figure:
    """Return the figure with every axis and colour bar whose label begins with "share" in percent."""
    panels = []
    for panel in figure.panels:
        (across, xlabel), (up, ylabel) = scale_unit(panel.xlabel), scale_unit(panel.ylabel)
        marks = []
        for mark in panel.marks:
            inside, label = scale_unit(mark.label) if mark.z else (1.0, mark.label)
            # ``low`` and ``high`` are of the axis that has no names.
            along = across if any(isinstance(value, str) for value in mark.y) else up
            factors = {"x": across, "y": up, "low": along, "high": along}
            scaled: dict[str, Any] = {name: _scale(getattr(mark, name), by) for name, by in factors.items()}
            marks.append(replace(mark, label=label, z=tuple(_scale(row, inside) for row in mark.z), **scaled))
        limits: dict[str, Any] = {"xlim": panel.xlim and _scale(panel.xlim, across)}
        limits["ylim"] = panel.ylim and _scale(panel.ylim, up)
        panels.append(replace(panel, marks=tuple(marks), xlabel=xlabel, ylabel=ylabel, **limits))
    return replace(figure, panels=tuple(panels))


def _scale(values: Sequence[Scalar], factor: float) -> tuple[Any, ...]:
    """Return numbers multiplied; names, and values that are missing, stay."""
    if factor == 1.0:
        return tuple(values)
    return tuple(value * factor if isinstance(value, (int, float)) else value for value in values)


def check_figure(figure: Figure, name: str) -> None:
    """Raise DataError for the first mark that cannot be drawn as it is."""
    if not figure.panels:
        raise DataError(f"figure {name!r} has no panels; leave the figure out instead")
    if figure.columns < 1:
        raise DataError(f"figure {name!r} has {figure.columns} columns; it needs at least 1")
    for number, panel in enumerate(figure.panels, 1):
        for place, mark in enumerate(panel.marks, 1):
            where = f"figure {name!r}, panel {number}, mark {place} ({mark.kind} {mark.label!r})"
            if mark.kind not in KINDS:
                raise DataError(f"{where}: {describe_unknown('mark kind', mark.kind, KINDS)}")
            KINDS[mark.kind](figure).check(mark, where)
        for axis, scale in (("x", panel.xscale), ("y", panel.yscale)):
            if scale not in ("linear", "log"):
                choice = describe_unknown(f"{axis} scale", scale, ("linear", "log"))
                raise DataError(f"figure {name!r}, panel {number}: {choice}")
