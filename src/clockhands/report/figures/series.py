"""Which colour, dash and symbol each mark of a figure gets: a label looks the same in every panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clockhands.findings import Figure, Mark, Panel
from clockhands.report.figures.mark_kinds import KINDS
from clockhands.report.figures.palette import DASHES, GREY, GREY_DASHES, MARKERS, RAMP, SERIES, Appearance


class Series:
    """The appearance of every mark of one figure."""

    def __init__(self, figure: Figure) -> None:
        self._series = _number_keys([_list_keys(panel, reference=False) for panel in figure.panels])
        self._references = _number_keys([_list_keys(panel, reference=True) for panel in figure.panels])
        self._total = 1 + max(self._series.values(), default=0)

    def choose_appearance(self, panel: Panel, mark: Mark) -> Appearance:
        """Return how a mark looks: grey and dashed for a reference, in the first colour and heavy for the main mark."""
        key = _get_key(panel, mark)
        if mark.emphasis == "reference":
            return Appearance(GREY, dash=GREY_DASHES[self._references.get(key, 0) % len(GREY_DASHES)], width=1.3)
        if key not in self._series:
            return Appearance(GREY)
        style = _pick(self._series[key], self._total)
        return replace(style, width=2.4, dash="-") if mark.emphasis == "main" else style


def _list_keys(panel: Panel, *, reference: bool) -> list[str]:
    """List the keys of the series that must be told apart in a panel, the main mark first."""
    marks = [mark for mark in panel.marks if _is_series(mark) and (mark.emphasis == "reference") == reference]
    marks.sort(key=lambda mark: mark.emphasis != "main")
    return list(dict.fromkeys(_get_key(panel, mark) for mark in marks))


def _number_keys(panels: Sequence[Sequence[str]]) -> dict[str, int]:
    """Give each key the first number that no key in the same panel has."""
    numbers: dict[str, int] = {}
    for key in dict.fromkeys(key for keys in panels for key in keys):
        taken = {numbers.get(other) for keys in panels if key in keys for other in keys}
        numbers[key] = next(number for number in range(len(taken) + 1) if number not in taken)
    return numbers


def _is_series(mark: Mark) -> bool:
    """Tell whether a mark gets a colour of its own: a neutral one only where it has a label."""
    kind = KINDS[mark.kind]
    return not kind.owns_axes and bool(mark.label or not kind.neutral)


def _get_key(panel: Panel, mark: Mark) -> str:
    """Return the label; without one the mark's place in its panel, after a character that no label begins with."""
    return mark.label or f"\0{next(place for place, other in enumerate(panel.marks) if other is mark)}"


def _pick(index: int, total: int) -> Appearance:
    """Return the appearance of one of ``total`` series: a colour of its own, or of many a step of a ramp."""
    if total <= len(SERIES):
        return Appearance(SERIES[index], MARKERS[index], DASHES[index % len(DASHES)] if total > 3 else "-")
    step = round(index * (len(RAMP) - 1) / (total - 1))
    return Appearance(RAMP[step], MARKERS[index % len(MARKERS)], DASHES[index % 2], width=1.2)
