"""What the table of a study changes in a size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.scaling import list_sizes


def test_a_size_can_say_what_is_measured_inside() -> None:
    """The task *stdlib* measures nothing inside unless the study asks for it."""
    assert STUDIES["do-positions-survive"].make_plan(size="stdlib").inside == ("survival",)
    assert STUDIES["sum-or-concatenate"].make_plan(size="stdlib").inside == ()


def test_a_size_can_choose_from_what_a_grid_makes() -> None:
    plan = STUDIES["how-far"].make_plan(size="twice")
    names = STUDIES["how-far"].sizes["twice"]["variants"]
    assert (
        {variant.name for variant in plan.variants}
        == set(names)
        < {v.name for v in STUDIES["how-far"].planned.variants}
    )
    assert plan.variant("alibi").overrides == {"position.scheme": "alibi"} and "floor" not in (plan.despite or {})
    assert (plan.recipe.training.precision, plan.recipe.model.d_model) == ("bf16", 128)


def test_what_a_study_sets_lies_over_the_size_and_may_not_be_the_plans() -> None:
    how_far, settings = STUDIES["how-far"], {"model.d_model": 96}
    for size in ("twice", "long"):
        assert replace(how_far, sizes={size: {"set": settings}}).make_plan(size=size).recipe.model.d_model == 96
    for wrong, fault in (
        ({"training.seed": 7}, r"set has training\.seed, which the plan sets"),
        ("bf16", "set is 'bf16'"),
    ):
        with pytest.raises(ConfigError, match=fault):
            replace(how_far, sizes={"twice": {"set": wrong}}).make_plan(size="twice")
    broken = replace(how_far, plan={**how_far.plan, "vary": {"position.scheme": []}}, sizes={"twice": {"variants": []}})
    with pytest.raises(ConfigError, match="the grid is empty"):
        broken.make_plan(size="twice")


def test_a_size_can_have_fewer_seeds_than_the_plan() -> None:
    study = STUDIES["which-layers-recall"]
    assert (len(study.planned.seeds), study.make_plan(size="twice").seeds) == (10, (1, 2, 3, 4, 5))
    assert study.make_plan(seeds=3, size="twice").seeds == (1, 2, 3)


def test_a_table_without_keys_declares_a_size() -> None:
    """What the size itself changes can be all that differs."""
    study = STUDIES["sum-or-concatenate"]
    planned = study.planned
    post = replace(study, sizes={"post": {}}).make_plan(size="post")
    assert post.recipe.model.norm == "post" != planned.recipe.model.norm
    assert [variant.name for variant in post.variants] == [variant.name for variant in planned.variants]
    with pytest.raises(ConfigError, match="say what it changes"):
        replace(study, sizes={}).make_plan(size="post")


def test_a_size_can_have_variants_of_its_own() -> None:
    """The planned learning rate is a choice: the size tries others beside it, which the plan does not have."""
    plan = STUDIES["scale"].make_plan(size="rates")
    rates = {v.name: plan.get_recipe(v.name, 1).training.learning_rate for v in plan.variants}
    assert {rate for name, rate in rates.items() if name.startswith("1, shared")} == {2e-3, 4e-3, 8e-3, 1.6e-2}
    assert rates["√d, shared, twice the rate"] == 2 * rates["√d, shared"]
    both = {"variants": ["sum"], "variant": [{"name": "sum", "set": {}}]}
    with pytest.raises(ConfigError, match="sum"):
        replace(STUDIES["sum-or-concatenate"], sizes={"gpu": both}).make_plan(size="gpu")


def test_a_fault_is_named() -> None:
    own = {"gpu": {"variants": ["sun"], "steps": 3, "change": [{"variant": "summ"}]}}
    with pytest.raises(ConfigError, match="3 faults") as raised:
        replace(STUDIES["sum-or-concatenate"], sizes=own).make_plan(size="gpu")
    assert "the study sum-or-concatenate, size gpu" in str(raised.value)
    assert "unknown key 'steps'" in str(raised.value) and "unknown variant 'summ'; did you mean 'sum'" in str(
        raised.value
    )


def test_a_size_that_a_study_lacks_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError, match=r"this one has the sizes cpu, long, longest, numbers, wide, .* and paper"):
        STUDIES["order-at-all"].make_plan(size="finer")
    assert "roles" not in list_sizes(STUDIES["order-at-all"].plan["recipe"], STUDIES["order-at-all"].sizes)
    assert "finer" in list_sizes(STUDIES["scale"].plan["recipe"], STUDIES["scale"].sizes)
