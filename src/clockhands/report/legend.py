"""Legends above the panels, never on the data: one for the figure where all panels speak of the same, else one each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from clockhands.findings import Mark, Panel
from clockhands.report.look import Look, Wardrobe
from clockhands.report.text import visible

Entries: TypeAlias = dict[str, Line2D | Patch]
LINE = 17.0  # points that one line of a legend takes


def entries(panel: Panel, wardrobe: Wardrobe) -> Entries:
    """One entry a label; a lone label needs none, unless it marks chance."""
    marks = [mark for mark in panel.marks if mark.label and mark.kind not in ("heatmap", "text")]
    lone = len({mark.label for mark in marks}) == 1 and all(mark.emphasis != "null" for mark in marks)
    if lone and not any(not mark.label and mark.kind != "band" for mark in panel.marks):
        return {}
    found: Entries = {}
    for mark in sorted(marks, key=_place):
        found.setdefault(visible(mark.label), _HANDLES[mark.kind](wardrobe.look(panel, mark)))
    return found


def common(panels: Sequence[Panel], wardrobe: Wardrobe, *, dense: bool) -> Entries:
    """The entries of all panels together, if one legend can serve them; otherwise nothing."""
    each = [entries(panel, wardrobe) for panel in panels if panel.marks]
    if dense or all(set(found) == set(each[0]) for found in each):
        return {label: handle for found in each for label, handle in found.items()}
    return {}


def lines(found: Entries, width: float) -> int:
    """How many lines the entries take at this width."""
    if not found:
        return 0
    longest = max(map(len, found)) * 6.5 + 42
    return math.ceil(len(found) / max(1, int(width // longest)))


def _place(mark: Mark) -> int:
    """The main mark first, chance last, bands after the lines whose label they bear."""
    return {"main": 0, "": 1, "null": 2}[mark.emphasis] * 2 + (mark.kind == "band")


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
