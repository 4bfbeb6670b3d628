"""Which colour, dash and symbol each mark of a figure wears: one label looks the same in every panel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.style import DASHES, MARKERS, NULL, RAMP, SERIES


@dataclass(frozen=True)
class Look:
    """Drawn so."""

    colour: str
    marker: str = "o"
    dash: Any = "-"
    width: float = 1.5


_NULL = Look(NULL, marker="o", dash=(0, (4, 2.2)), width=1.3)


class Wardrobe:
    """Gives each mark of one figure its look."""

    def __init__(self, figure: Figure) -> None:
        keys = [_key(panel, mark) for panel in figure.panels for mark in panel.marks if _coloured(mark)]
        main = [_key(panel, mark) for panel in figure.panels for mark in panel.marks if mark.emphasis == "main"]
        ordered = list(dict.fromkeys([*main, *keys]))
        self._looks = {key: _pick(index, len(ordered)) for index, key in enumerate(ordered)}

    def look(self, panel: Panel, mark: Mark) -> Look:
        """Chance is grey and dashed; the main mark is first of the palette and heavier."""
        if mark.emphasis == "null":
            return _NULL
        base = self._looks.get(_key(panel, mark), Look(NULL))
        return replace(base, width=2.4) if mark.emphasis == "main" else base


def _coloured(mark: Mark) -> bool:
    if mark.emphasis == "null" or mark.kind in ("heatmap", "text"):
        return False
    return bool(mark.label) or mark.kind not in ("hline", "vline", "band")


def _key(panel: Panel, mark: Mark) -> str:
    """The label; without one its place among the panel's unlabelled marks. A bare band belongs to its neighbour."""
    if mark.label:
        return mark.label
    if mark.kind == "band":
        neighbour = _neighbour(panel.marks, mark)
        return _key(panel, neighbour) if neighbour else "\0band"
    bare = [other for other in panel.marks if not other.label and _coloured(other)]
    return f"\0{next((index for index, other in enumerate(bare) if other is mark), 0)}"


def _neighbour(marks: tuple[Mark, ...], band: Mark) -> Mark | None:
    at = next(index for index, mark in enumerate(marks) if mark is band)
    near: Iterable[Mark] = (*marks[at + 1 :], *reversed(marks[:at]))
    return next((mark for mark in near if mark.kind in ("line", "points")), None)


def _pick(index: int, total: int) -> Look:
    if total <= len(SERIES):
        return Look(SERIES[index], MARKERS[index], DASHES[index % len(DASHES)] if total > 3 else "-")
    step = round(index * (len(RAMP) - 1) / (total - 1))
    return Look(RAMP[step], MARKERS[index % len(MARKERS)], DASHES[index % 2], width=1.2)
