"""Legends above the panels, never on the data: one for the figure if its panels have one set of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from clockhands.findings import Mark
from clockhands.report.figures.mark_kind import Plot
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.streams import replace_controls

LINE = 17.0
"""The height of one line of a legend, in points."""


def list_labels(plot: Plot) -> dict[str, int]:
    """Return each label with the index of the first mark that has it. A lone label is left out, but for a reference."""
    marks = [(index, mark) for index, mark in enumerate(plot.panel.marks) if not KINDS[mark.kind].owns_axes]
    labelled = [(index, mark) for index, mark in marks if mark.label]
    alone = len({mark.label for _, mark in labelled}) == 1 and all(mark.emphasis != "reference" for _, mark in labelled)
    if alone and not any(not mark.label and not KINDS[mark.kind].neutral for _, mark in marks):
        return {}
    labelled.sort(key=lambda entry: _get_rank(entry[1]))
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


def _get_rank(mark: Mark) -> tuple[int, bool]:
    """Return what legends are sorted by: the main mark first, references last, areas after the lines of their label."""
    return {"main": 0, "": 1, "reference": 2}[mark.emphasis], KINDS[mark.kind].neutral
