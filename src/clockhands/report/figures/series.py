"""Which colour, dash and symbol each mark of a figure gets: a label looks the same in every panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.report.figures.palette import DASHES, MARKERS, NULL, NULL_DASHES, RAMP, SERIES, Appearance


class Series:
    """The appearance of every mark of one figure."""

    def __init__(self, figure: Figure) -> None:
        self._series = _number([_keys(panel, null=False) for panel in figure.panels])
        self._nulls = _number([_keys(panel, null=True) for panel in figure.panels])
        self._total = 1 + max(self._series.values(), default=0)

    def appearance(self, panel: Panel, mark: Mark) -> Appearance:
        """Return grey and dashes for chance, the first colour and a heavy line for the main mark."""
        key = _key(panel, mark)
        if mark.emphasis == "reference":
            return Appearance(NULL, dash=NULL_DASHES[self._nulls.get(key, 0) % len(NULL_DASHES)], width=1.3)
        if key not in self._series:
            return Appearance(NULL)
        style = _pick(self._series[key], self._total)
        return replace(style, width=2.4, dash="-") if mark.emphasis == "main" else style


def _keys(panel: Panel, *, null: bool) -> list[str]:
    """What must be told apart in a panel, the main mark first."""
    marks = [mark for mark in panel.marks if _is_series(mark) and (mark.emphasis == "reference") == null]
    marks.sort(key=lambda mark: mark.emphasis != "main")
    return list(dict.fromkeys(_key(panel, mark) for mark in marks))


def _number(panels: Sequence[Sequence[str]]) -> dict[str, int]:
    """Give each key the first number that no key in the same panel has."""
    numbers: dict[str, int] = {}
    for key in dict.fromkeys(key for keys in panels for key in keys):
        taken = {numbers.get(other) for keys in panels if key in keys for other in keys}
        numbers[key] = next(number for number in range(len(taken) + 1) if number not in taken)
    return numbers


def _is_series(mark: Mark) -> bool:
    kind = KINDS[mark.kind]
    return not kind.owns_axes and bool(mark.label or not kind.neutral)


def _key(panel: Panel, mark: Mark) -> str:
    """The label; without one the mark's place in its panel, behind a character that no label begins with."""
    return mark.label or f"\0{next(place for place, other in enumerate(panel.marks) if other is mark)}"


def _pick(index: int, total: int) -> Appearance:
    if total <= len(SERIES):
        return Appearance(SERIES[index], MARKERS[index], DASHES[index % len(DASHES)] if total > 3 else "-")
    step = round(index * (len(RAMP) - 1) / (total - 1))
    return Appearance(RAMP[step], MARKERS[index % len(MARKERS)], DASHES[index % 2], width=1.2)
