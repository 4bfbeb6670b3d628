"""The tour on few texts and for few steps."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.cli import main
from clockhands.studies.study import Study
from clockhands.studies.tour.training import TOUR
from tests.shared import make_once, sketched


def shorten(study: Study) -> Study:
    """The same study, its models trained for two steps on few texts."""
    recipe = {name: dict(table) for name, table in study.plan["recipe"].items()}
    recipe["data"] |= {"train": 600, "test": 6, "validation": 4}
    recipe["training"] |= {"max_steps": 2, "log_steps": 1}
    return replace(study, plan={**study.plan, "recipe": recipe})


def shorten_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten both studies of the tour until the test ends."""
    for name, study in list(TOUR.items()):
        if "train" not in study.plan["recipe"]["data"]:
            monkeypatch.setitem(TOUR, name, shorten(study))


def make_tour(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short tour, run once by its command; what that printed and said is beside the folder.

    Its page has small figures. Tests that write into the folder copy it first.
    """
    return make_once(factory, "tour", _type_tour) / "made" / "tour"


def _type_tour(folder: Path) -> None:
    printed, said = ((folder / name).open("w", encoding="utf8") for name in ("printed.txt", "said.txt"))
    with pytest.MonkeyPatch.context() as patch, sketched(), printed, said, redirect_stdout(printed):
        shorten_tour(patch)
        with redirect_stderr(said):
            assert main(["tour", "--out", str(folder / "made" / "tour")]) == 0
