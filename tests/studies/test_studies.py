"""The built-in studies: every plan is sound, and what a page says is equal is equal."""

from __future__ import annotations

import pytest

from clockhands.comparison.cost import CLOSE, count_recipe_parameters
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.studies import FOLDER, ORDER, open_study, title_of
from clockhands.training import prepare


def test_every_plan_in_the_folder_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_study_has_seeds_enough_and_counts_its_trials(name: str) -> None:
    plan = open_study(name)
    assert len(plan.seeds) >= MIN_SEEDS
    assert title_of(name) == (plan.title, len(plan.trials))


def test_equal_parameters_are_equal() -> None:
    plan = open_study("sum-or-concatenate")
    material = prepare(plan.recipe)
    count = {
        variant.name: count_recipe_parameters(plan.recipe_of(variant.name, 1), material) for variant in plan.variants
    }
    equal = [name for name in count if name.endswith("equal parameters")]
    assert len(equal) == 5, "every split, the learned table, and the projection"
    for name in equal:
        wanted = count["sum, learned" if "learned" in name else "sum"]
        assert abs(count[name] - wanted) <= CLOSE * wanted
        assert abs(count[name.removesuffix(", equal parameters")] - wanted) > CLOSE * wanted
