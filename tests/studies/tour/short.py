"""The tour on few texts and for few steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clockhands.studies.study import Study
from clockhands.studies.tour.training import TOUR


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
