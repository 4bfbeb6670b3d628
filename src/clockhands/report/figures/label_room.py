"""How much room the titles, labels and names of a panel take, in points, before any of them is drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Collection

from clockhands.findings import Panel
from clockhands.report.figures.mark_kind import list_x
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.streams import replace_controls

__all__ = ["break_lines", "fit_upright", "measure_broken_lines", "measure_names", "measure_side", "measure_slant"]

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
