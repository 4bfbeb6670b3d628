"""Refuse figures that contradict themselves, with the place and what to change, before anything is drawn."""

from __future__ import annotations

from clockhands.errors import DataError, describe_unknown
from clockhands.findings import Figure
from clockhands.report.figures.mark_kinds import KINDS


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
