"""The models that a page shows where no run is named: those of the tour, trained where they are absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clockhands.runs import Run
from clockhands.studies.tour import run_tour
from clockhands.studies.tour.training import FOLDERS, MAIN, NO_SCALE, ROLES, ROLES_BLIND

__all__ = ["LABELS", "find_tour_models"]

LABELS = {
    MAIN: ("numbers", "German numbers"),
    ROLES: ("roles", "who bit whom"),
    ROLES_BLIND: ("roles-no-position", "who bit whom, without positions"),
    NO_SCALE: ("numbers-no-scale", "German numbers, trained without √d"),
}
"""The key and the label of each variant of the tour that a page shows."""


def find_tour_models(out: Path, *, show: bool, say: Callable[[str], None]) -> dict[tuple[str, str], Run]:
    """Return the runs of the tour in ``out`` by key and label; the tour is run there if the folder does not exist.

    Raises UsageError if the folder holds something else, and whatever ``run_tour`` raises.
    """
    if not out.exists():
        from clockhands.report import write

        say(f"there is no tour in {out} yet: it is run first")
        write(run_tour(out, show=show, say=say), out, name="report.html")
    return {LABELS[variant]: Run.from_folder(out / FOLDERS[variant]) for variant in LABELS}
