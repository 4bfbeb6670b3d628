"""What the table of a study changes in a size."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from clockhands.cli import main
from clockhands.cli.study import StudyScale
from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.scaling import SIZES


def test_a_size_can_say_what_is_measured_inside() -> None:
    """The task *stdlib* measures nothing inside unless the study asks for it."""
    assert STUDIES["do-positions-survive"].make_plan(size="stdlib").inside == ("survival",)
    assert STUDIES["sum-or-concatenate"].make_plan(size="stdlib").inside == ()


def test_a_size_can_choose_from_what_a_grid_makes() -> None:
    plan = STUDIES["how-far"].make_plan(size="twice")
    names = STUDIES["how-far"].sizes["twice"]["variants"]
    planned = {variant.name for variant in STUDIES["how-far"].planned.variants}
    assert {variant.name for variant in plan.variants} == set(names) < planned
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


def test_a_size_can_have_more_or_fewer_seeds_than_the_plan() -> None:
    """The finer one holds differences to a point, with more items."""
    finer, planned = STUDIES["scale"].make_plan(size="finer"), STUDIES["scale"].planned
    assert (finer.equal_within, finer.seeds, finer.recipe.corpus_options["test"]) == (1.0, tuple(range(1, 11)), 1000)
    assert (planned.equal_within, len(planned.seeds)) == (5.0, 5)
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
    assert "unknown key 'steps'" in str(raised.value)
    assert "unknown variant 'summ'; did you mean 'sum'" in str(raised.value)


def test_the_command_knows_every_size() -> None:
    assert tuple(SIZES) == get_args(StudyScale)


TASKS = {
    "roles": "roles", "roles-long": "roles", "numbers": "numbers", "stdlib": "stdlib", "stdlib-long": "stdlib",
}  # fmt: skip
WIDTHS = {
    "twice": 128, "twice-long": 128, "twice-more": 128, "wide": 256, "wide-long": 256, "wider": 512, "gpu": 256,
    "paper": 512,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_plan_in_every_size(name: str, size: str) -> None:
    planned = STUDIES[name].planned
    task = planned.recipe.corpus, planned.recipe.tables["tokenizer"]["kind"]
    roles = SIZES[size].recipe == "recipes/roles.toml" and size in STUDIES[name].sizes | {"roles": {}}
    if roles and task != ("numbers", "morpheme"):
        with pytest.raises(ConfigError, match=f"the size {size} is for studies of"):
            STUDIES[name].make_plan(size=size)
        return
    if SIZES[size].declared and size not in STUDIES[name].sizes:
        with pytest.raises(ConfigError, match=rf"the size {size} is for studies that say what it changes, under \[si"):
            STUDIES[name].make_plan(size=size)
        return
    scaled = STUDIES[name].make_plan(size=size)
    own = STUDIES[name].sizes.get(size, {})
    assert scaled.budget[1] == own.get("budget", {}).get("steps", SIZES[size].times * planned.budget[1])
    assert scaled.recipe.model.d_model == WIDTHS.get(size, planned.recipe.model.d_model)
    count = own.get("seeds", SIZES[size].plan.get("seeds"))
    seeds = tuple(range(1, count + 1)) if count else planned.seeds
    assert (scaled.baseline, scaled.seeds) == (planned.baseline, seeds)
    assert scaled.recipe.corpus == TASKS.get(size, planned.recipe.corpus)
    assert bool(scaled.redraw_text) == (
        size in ("numbers", "stdlib", "stdlib-long", "scores", "finer", "finer-long")
        or planned.recipe.corpus == "stdlib"
    )


def test_a_third_task_is_judged_by_its_loss_and_has_a_text_for_each_seed() -> None:
    plan = STUDIES["scale"].make_plan(size="stdlib")
    assert (plan.metric, plan.equal_within, plan.inside) == ("loss", 0.03, ())
    assert plan.recipe.model.architecture == "decoder" and plan.get_recipe("1, shared", 3).training.text_seed == 3
    assert plan.despite is not None and list(plan.despite) == ["ceiling"]
    with pytest.raises(ConfigError, match=r"the size numbers is for studies of recipes/roles\.toml, and this one"):
        replace(STUDIES["scale"], sizes={"numbers": {"variants": ["1, shared"]}}).make_plan(size="numbers")


def test_what_is_relative_to_the_width_grows_with_it() -> None:
    plan = STUDIES["sum-or-concatenate"].make_plan(size="gpu")
    assert plan.variant("concatenate 192 + 64").overrides["position.width"] == 64
    divided = STUDIES["scale"].make_plan(size="gpu").variant("1, shared, encoding/√d").overrides
    assert divided["position.amplitude"] == pytest.approx(256**-0.5)
    wide = STUDIES["sum-or-concatenate"].make_plan(size="wide")
    assert wide.variant("concatenate 192 + 64").overrides["position.width"] == 64, "as the file says of gpu"
    wider = STUDIES["sum-or-concatenate"].make_plan(size="wider")
    assert wider.variant("concatenate 128 + 384").overrides["position.width"] == 384 == 512 - 128
    longer = STUDIES["scale"].make_plan(size="long")
    starts = ["√d, shared", "1, shared", "1, separate", "1, shared, N(0, 1)", "1, shared, Xavier"]
    assert [variant.name for variant in longer.variants] == starts


def test_the_factor_of_the_scores_is_crossed_with_that_of_the_embedding() -> None:
    plan = STUDIES["scale"].make_plan(size="scores")
    assert plan.inside == ("loudness", "terms")
    models = {variant.name: plan.get_recipe(variant.name, 1).model for variant in plan.variants}
    crossed = {(m.norm, m.token_scale, m.attention_scale or 1 / m.resolved_head_dim**0.5) for m in models.values()}
    width = models["√d, shared"].resolved_head_dim
    factors = {1 / width**0.5, 1 / width, 1.0}
    assert crossed == {(norm, own, factor) for norm in ("pre", "post") for own in ("sqrt", "one") for factor in factors}
    assert len(models) == len(crossed)


def test_the_command_states_the_size(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["study", "scale", "--scale", "huge"]) == 2
    assert "invalid choice: 'huge'" in capsys.readouterr().err
    monkeypatch.setattr("clockhands.cli.trials.describe", lambda plan, workers, threads: print(plan.budget) or 0)
    assert main(["study", "scale", "--scale", "long", "--dry-run"]) == 0
    assert "size long: as planned, with four times the budget" in capsys.readouterr().out
