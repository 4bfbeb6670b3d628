"""How the marks of a figure stand together: room for labels, legends, axes that panels share, colours of labels."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures.mark_kind import Plot, list_x
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.report.figures.palette import DASHES, GREY, GREY_DASHES, MARKERS, RAMP, SERIES, Appearance
from clockhands.streams import replace_controls

LETTER = 6.8
"""About how wide a letter of a title or a label is, in points."""
SLOPE = 3.4
"""By how much each letter of a slanted name lies lower than the last, in points."""


def measure_side(panel: Panel) -> float:
    """Return about how wide the ticks beside a panel are, with its label, in points."""
    names = [replace_controls(value) for mark in panel.marks for value in mark.y if isinstance(value, str)]
    return 30.0 + LETTER * max(4, *map(len, names)) if names else 60.0


def break_lines(text: str, room: float) -> str:
    """Return a title or a label in lines that are at most ``room`` points long."""
    return textwrap.fill(replace_controls(text), max(8, int(room / LETTER)), break_on_hyphens=False)


def measure_broken_lines(panel: Panel, width: float) -> float:
    """Return the height of all lines of title and label but the first of each, in points."""
    across = width - measure_side(panel)
    return 14.0 * sum(break_lines(text, across).count("\n") for text in (panel.title, panel.xlabel))


def measure_names(panel: Panel) -> float:
    """Return the height that the names along the side of a panel need, in points."""
    names = {value for mark in panel.marks for value in mark.y if isinstance(value, str)}
    size = min((KINDS[mark.kind].row_height for mark in panel.marks), default=0.0)
    return size * len(names) + 46.0 if len(names) <= 60 else 0.0


def measure_slant(panel: Panel, width: float) -> float:
    """Return the height that names below a panel need where they are slanted, in points."""
    marks = [mark for mark in panel.marks if not KINDS[mark.kind].owns_axes]
    names = {value for mark in marks for value in list_x(mark) if isinstance(value, str)}
    return 0.0 if fit_upright(names, width) else SLOPE * max(map(len, names))


def fit_upright(names: Collection[str], width: float) -> bool:
    """Tell whether names fit side by side below a panel of this width."""
    return max(map(len, names), default=0) * LETTER * len(names) <= width * 0.85


LINE = 17.0
"""The height of one line of a legend, in points."""


def list_labels(plot: Plot) -> dict[str, int]:
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


def find_common_labels(plots: Sequence[Plot]) -> list[str]:
    """Return the labels of all panels together, if one legend can serve them; otherwise nothing."""
    sets = [list_labels(plot) for plot in plots if plot.panel.marks]
    return list(sets[0]) if sets and all(set(other) == set(sets[0]) for other in sets) else []


def count_lines(names: Sequence[str], width: float) -> int:
    """Return how many lines the entries take at this width, in points."""
    if not names:
        return 0
    longest = max(map(len, names)) * 6.5 + 42
    return math.ceil(len(names) / max(1, int(width // longest)))


def draw_legend(owner: Any, plots: Sequence[Plot], names: Sequence[str], width: float, **place: Any) -> None:
    """Draw the entries on ``owner``, axes or a whole figure, in as many columns as fit."""
    handles = {name: plot.handles[index] for plot in plots for name, index in list_labels(plot).items()}
    columns = math.ceil(len(names) / count_lines(names, width))
    owner.legend([handles[name] for name in names], list(names), ncols=columns, columnspacing=1.5, **place)


Axis = Literal["x", "y"]


def is_shared(plots: Sequence[Plot], axis: Axis) -> bool:
    """Tell whether all panels have one label, scale, set of categories, limits and size of heatmaps on this axis."""
    drawn = [plot for plot in plots if plot.panel.marks]
    if len(drawn) < 2 or any(plot.panel.equal for plot in drawn):
        return False
    return len({_describe_axis(plot, axis) for plot in drawn}) == 1 and bool(getattr(drawn[0].panel, f"{axis}label"))


def label_outer(plots: Sequence[Plot], columns: int, axis: Axis) -> None:
    """Leave names and numbers of a shared axis to the lowest panel of each column or the first of each row."""
    for index, plot in enumerate(plots):
        below = index + columns
        if axis == "x" and below < len(plots) and plots[below].panel.marks:
            plot.ax.tick_params(labelbottom=False)
            plot.ax.set_xlabel("")
        if axis == "y" and index % columns:
            plot.ax.tick_params(labelleft=False)
            plot.ax.set_ylabel("")


def _describe_axis(plot: Plot, axis: Axis) -> tuple[Any, ...]:
    """Return all that must be equal for two panels to share this axis."""
    panel = plot.panel
    maps = [mark.z for mark in panel.marks if KINDS[mark.kind].owns_axes]
    if axis == "x":
        return panel.xlabel, panel.xscale, panel.xlim, tuple(plot.x.names), tuple(len(z[0]) for z in maps)
    return panel.ylabel, panel.yscale, panel.ylim, tuple(plot.y.names), tuple(len(z) for z in maps)


def choose_appearances(figure: Figure) -> list[list[Appearance]]:
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
