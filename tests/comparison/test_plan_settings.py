"""The settings that a plan adds to a recipe."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.comparison.plan_settings import read_budget
from clockhands.runs.recipe import Recipe
from tests.training.tiny import tables


@pytest.mark.parametrize(
    ("budget", "read", "fault"),
    [
        (None, ("steps", 24), ""),
        ({"tokens": 1000}, ("tokens", 1000), ""),
        ({"seconds": 0}, ("seconds", 0), "must be a finite number above 0"),
        ({"steps": 5, "tokens": 9}, ("steps", 0), "must be one of steps, tokens, seconds"),
    ],
)
def test_a_budget_is_read_or_its_fault_told(budget: Any, read: tuple[str, int], fault: str) -> None:
    """By default the steps of the recipe, which are 24 here."""
    faults: list[str] = []
    assert read_budget(budget, Recipe.from_tables(tables()), faults) == read
    assert [fault in told for told in faults] == ([True] if fault else [])


def test_a_recipe_that_counts_epochs_has_no_steps_to_share() -> None:
    faults: list[str] = []
    epochs = Recipe.from_tables(tables(max_steps=None, epochs=2))
    assert read_budget(None, epochs, faults) == ("steps", 0)
    assert "the recipe counts epochs" in faults[0]
