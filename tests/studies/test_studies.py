"""The built-in studies: every plan is sound, and what a page says is equal is equal."""

from __future__ import annotations

from pathlib import Path

import pytest

import clockhands.studies
from clockhands.comparison.cost import CLOSE, count_recipe_parameters
from clockhands.comparison.statistics.paired import MIN_SEEDS
from clockhands.errors import UsageError
from clockhands.studies import STUDIES
from clockhands.training import prepare


def test_every_file_of_the_folder_is_a_study() -> None:
    files = Path(clockhands.studies.__file__).parent.glob("*.toml")
    assert {path.stem for path in files} == {*STUDIES, "sizes"}
    places = [study.place for study in STUDIES.values()]
    assert places == sorted(set(places)), "no two stand at the same place"
    with pytest.raises(UsageError, match="unknown study 'scales'; did you mean 'scale'"):
        STUDIES["scales"]


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_has_seeds_enough_and_counts_its_trials(name: str) -> None:
    study, plan = STUDIES[name], STUDIES[name].planned
    assert len(plan.seeds) >= MIN_SEEDS
    assert (plan.title, len(plan.trials)) == (study.question, study.trials)
    variants = {variant.name for variant in plan.variants}
    assert {variant for reading in study.readings for variant in reading.when} <= variants
    ordered = [*study.orderings, *(ordering for reading in study.readings for ordering in reading.ordered)]
    assert {variant for ordering in ordered for variant in ordering.variants} <= variants


def test_equal_parameters_are_equal() -> None:
    plan = STUDIES["sum-or-concatenate"].make_plan()
    material = prepare(plan.recipe)
    count = {
        variant.name: count_recipe_parameters(plan.get_recipe(variant.name, 1), material) for variant in plan.variants
    }
    equal = [name for name in count if name.endswith("equal parameters")]
    assert equal == ["concatenate 16 + 48, equal parameters"]
    wanted = count["sum"]
    assert abs(count[equal[0]] - wanted) <= CLOSE * wanted
    assert abs(count["concatenate 16 + 48"] - wanted) > CLOSE * wanted
