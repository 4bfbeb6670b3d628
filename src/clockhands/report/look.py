"""Which colour, dash and symbol each mark of a figure wears: one label looks the same in every panel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.style import DASHES, MARKERS, NULL, NULL_DASHES, RAMP, SERIES


@dataclass(frozen=True)
class Look:
    """Drawn so."""

    colour: str
    marker: str = "o"
    dash: Any = "-"
    width: float = 1.5


class Wardrobe:
    """Gives each mark of one figure its look."""

    def __init__(self, figure: Figure) -> None:
        self._series = _spread([_keys(panel, null=False) for panel in figure.panels])
        self._nulls = _spread([_keys(panel, null=True) for panel in figure.panels])
        self._total = 1 + max(self._series.values(), default=0)

    def look(self, panel: Panel, mark: Mark) -> Look:
        """Chance is grey and dashed; the main mark is first of the palette and heavier."""
        key = _key(panel, mark)
        if mark.emphasis == "null":
            return Look(NULL, dash=NULL_DASHES[self._nulls.get(key, 0) % len(NULL_DASHES)], width=1.3)
        if key not in self._series:
            return Look(NULL)
        look = _pick(self._series[key], self._total)
        return replace(look, width=2.4, dash="-") if mark.emphasis == "main" else look


def _keys(panel: Panel, *, null: bool) -> list[str]:
    """What needs telling apart in a panel, the main mark first."""
    marks = [mark for mark in panel.marks if _coloured(mark) and (mark.emphasis == "null") == null]
    marks.sort(key=lambda mark: mark.emphasis != "main")
    return list(dict.fromkeys(_key(panel, mark) for mark in marks))


def _spread(panels: Sequence[Sequence[str]]) -> dict[str, int]:
    """To each key the first place that no key met in the same panel has."""
    places: dict[str, int] = {}
    for key in dict.fromkeys(key for keys in panels for key in keys):
        taken = {places.get(other) for keys in panels if key in keys for other in keys}
        places[key] = next(place for place in range(len(taken) + 1) if place not in taken)
    return places


def _coloured(mark: Mark) -> bool:
    if mark.kind in ("heatmap", "text"):
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
