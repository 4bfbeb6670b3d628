"""A study is refused whose task can hardly tell models apart, unless its plan says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli import main
from clockhands.comparison import Comparison, make_plan
from clockhands.comparison.task_findings import find_plan_floor, list_above
from clockhands.data import Ceiling
from clockhands.data.bounds import Floor
from clockhands.errors import ClockhandsError, ConfigError, UsageError
from clockhands.studies import STUDIES, Study
from clockhands.studies.soundness import (
    check_baseline,
    check_ceiling,
    check_floor,
    makes_claim_about_length,
)
from tests.answers import kept
from tests.comparison.planted import plan, results


def study(**plan_tables: Any) -> Study:
    return replace(STUDIES["scale"], plan={"recipe": "recipes/numbers.toml", "seeds": 5, **plan_tables})


def ceiling(share: float) -> Ceiling:
    return Ceiling(share, share, share, "of all")


def scored(percent: float) -> Comparison:
    """A comparison whose baseline has that score."""
    right = round(10 * percent)
    base = results().plan.baseline
    trials = [
        replace(trial, items="1" * right + "0" * (1000 - right) if trial.variant == base else "01" * 500)
        for trial in results().trials
    ]
    return replace(results(), trials=tuple(trials))


def test_a_task_that_hardly_needs_order_is_refused() -> None:
    check_ceiling(study(), ceiling(0.6))
    with pytest.raises(UsageError, match=r"study scale is refused: 60\.1 % of its items .* more than 60 %.*despite"):
        check_ceiling(study(), ceiling(0.601))
    check_ceiling(study(despite={"ceiling": "because"}), ceiling(1.0))
    with pytest.raises(UsageError, match=r"is refused"):
        check_ceiling(study(despite={"baseline": "because"}), ceiling(1.0))
    check_ceiling(replace(study(), unscored=True), ceiling(1.0))
    check_ceiling(study(), ceiling(1.0), plan(despite={"ceiling": "of this size"}))


def test_a_baseline_that_gets_everything_right_gives_no_answer() -> None:
    name = results().plan.baseline
    check_baseline(study(), scored(98.0))
    with pytest.raises(
        ClockhandsError, match=rf"gives no answer: its baseline '{name}' has 98\.1 \(exact match %\), more than 98,"
    ):
        check_baseline(study(), scored(98.1))
    check_baseline(study(despite={"baseline": "because"}), scored(100.0))
    check_baseline(replace(study(), unscored=True), scored(100.0))


def test_the_layouts_that_answers_call_below_the_floor_are_below_it() -> None:
    """All of them, not the baseline alone; after the short training none is."""
    trained = {name: kept.read_kept(f"which-layers.{name}") for name in ("twice-long", "twice")}
    floor = find_plan_floor(replace(trained["twice-long"].plan, seeds=(1,)))
    assert floor is not None and list_above(floor, trained["twice-long"]) == {}
    assert len(list_above(floor, trained["twice"])) == len(trained["twice"].plan.variants)


def test_length_is_not_claimed_above_the_floor() -> None:
    comparison = results()
    trials = tuple(replace(trial, scores={"loss": 2.0}) for trial in comparison.trials)
    comparison, far = replace(comparison, trials=trials), STUDIES["how-far"]
    unexcused = replace(far, plan={key: value for key, value in far.plan.items() if key != "despite"})
    check_floor(unexcused, comparison, Floor(2.41, 100))
    with pytest.raises(
        ClockhandsError, match=r"no answer about length: its baseline .* has 2\.00 nats per token\. A tri"
    ):
        check_floor(unexcused, comparison, Floor(2.4, 100))
    planned = replace(comparison, plan=replace(comparison.plan, despite=far.planned.despite))
    check_floor(far, planned, Floor(2.4, 100))
    check_floor(unexcused, comparison, None)
    wider = replace(comparison, plan=replace(comparison.plan, despite=far.make_plan(size="twice").despite))
    with pytest.raises(ClockhandsError, match="no answer about length"):
        check_floor(far, wider, Floor(2.4, 100))
    assert not makes_claim_about_length(study())
    check_floor(study(), comparison, Floor(2.4, 100))


def test_a_loss_has_no_end() -> None:
    comparison = scored(100.0)
    check_baseline(study(), replace(comparison, plan=replace(comparison.plan, metric="loss")))


def test_reasons_are_checked_and_change_no_folder() -> None:
    recipe = {"data": {"corpus": "numbers"}, "training": {"max_steps": 9}}
    vary = {"model.norm": ["pre", "post"]}
    made = make_plan(recipe, vary=vary, despite={"ceiling": "because"})
    assert made.despite == {"ceiling": "because"} and type(made).from_dict(made.to_dict()) == made
    assert made.fingerprint == make_plan(recipe, vary=vary).fingerprint
    with pytest.raises(ConfigError, match="unknown exception in despite 'ceilings'; did you mean 'ceiling'"):
        make_plan(recipe, vary=vary, despite={"ceilings": "because"})
    with pytest.raises(ConfigError, match="is empty, but must say why, although the baseline"):
        make_plan(recipe, vary=vary, despite={"baseline": " "})


@pytest.mark.parametrize("name", STUDIES)
def test_every_built_in_study_may_run(name: str) -> None:
    """What is above the bounds has its reason."""
    made = STUDIES[name].planned
    judged = not STUDIES[name].unscored and "ceiling" not in STUDIES[name].despite
    if made.recipe.corpus in ("numbers", "roles") and judged:
        from clockhands.comparison.task_findings import find_plan_ceiling

        check_ceiling(STUDIES[name], find_plan_ceiling(made))
    if name in kept.list_kept():
        comparison = kept.read_kept(name)
        tables = (comparison.plan.to_dict()["recipe"], made.to_dict()["recipe"])
        if all(tables[0][table] == tables[1][table] for table in ("data", "tokenizer")):
            check_baseline(STUDIES[name], comparison)


def test_the_command_refuses_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {"data": {"corpus": "numbers"}, "tokenizer": {"vocabulary": 400}, "training": {"max_steps": 9}}
    easy = {"recipe": pairs, "seeds": 5, "vary": {"position.scheme": ["sinusoidal", "none"]}}
    monkeypatch.setitem(STUDIES, "scale", replace(STUDIES["scale"], plan=easy))
    assert main(["study", "scale", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "the study scale is refused" in said.err and "Traceback" not in said.err
    assert not (tmp_path / "out").exists()
