"""A study is refused whose task can hardly tell models apart, unless its plan says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
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
    check_orderings,
    makes_claim_about_length,
    tally_orderings,
)
from clockhands.studies.study import Ordering
from tests.answers import kept
from tests.comparison.planted import change_trials, plan, results


def study(**plan_tables: Any) -> Study:
    return replace(STUDIES["scale"], plan={"recipe": "recipes/numbers.toml", "seeds": 5, **plan_tables})


def ceiling(share: float) -> Ceiling:
    return Ceiling(share, share, share, "of all")


def scored(percent: float) -> Comparison:
    """A comparison whose baseline has that score."""
    right = round(10 * percent)
    items = {results().plan.baseline: "1" * right + "0" * (1000 - right)}
    return change_trials(results(), lambda trial: {"items": items.get(trial.variant, "01" * 500)})


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
    comparison, far = change_trials(results(), lambda trial: {"scores": {"loss": 2.0}}), STUDIES["how-far"]
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


ORDERINGS = (
    (Ordering("holds", "A", more="better", less="base"), "reproduced"),
    (Ordering("is wrong", "B", more="worse", less="base"), "contradicted"),
    (Ordering("cannot be told", "C", more="same", less="base"), "undecided"),
    (Ordering("alike", "D", alike=("same", "base")), "undecided (not shown to be equal within ±1)"),
    (Ordering("not alike", "E", alike=("better", "base")), "contradicted"),
)
STUDY = replace(STUDIES["scale"], orderings=tuple(ordering for ordering, _ in ORDERINGS))


def test_a_planted_ordering_is_found() -> None:
    checked = check_orderings(STUDY, results())
    for (ordering, verdict), row in zip(ORDERINGS, checked, strict=True):
        assert row.claim == ordering.claim and row.verdict.startswith(verdict), row
    assert checked[0].measured.startswith("better − base, score: +1")
    assert tally_orderings(STUDY, results()).endswith("reports, 1 are reproduced here, 2 contradicted and 2 undecided")


def test_equality_is_reproduced_within_the_margin_of_the_plan() -> None:
    made, study = results(), replace(STUDY, orderings=(Ordering("alike", "D", alike=("same", "base")),))
    (row,) = check_orderings(study, replace(made, plan=replace(made.plan, margin=6.0)))
    assert row.verdict == "reproduced (equal within ±6)"


def test_a_reported_difference_can_be_shown_to_be_smaller_than_the_margin() -> None:
    """Which is decided, and no contradiction; a difference that is shown stays so, and no margin, no equality."""
    orderings = (Ordering("better", "D", more="same", less="base"), *STUDY.orderings[:2])
    made = results()
    made = replace(made, plan=replace(made.plan, margin=6.0))
    study = replace(STUDY, orderings=orderings)
    verdicts = [row.verdict for row in check_orderings(study, made)]
    assert verdicts == ["equal within ±6", "reproduced", "contradicted"]
    counts = "1 are reproduced here, 1 contradicted and 1 shown to be equal within the margin and 0 undecided"
    assert tally_orderings(study, made).endswith(counts.replace(" contradicted and", " contradicted,"))


@pytest.mark.parametrize(
    ("more", "less", "verdict", "counted"),
    [("better", "worse", "reproduced", "6 of 6"), ("worse", "better", "contradicted", "0 of 6")],
)
def test_every_seed_is_asked_where_no_interval_is(more: str, less: str, verdict: str, counted: str) -> None:
    ordering = Ordering("in each", more=more, less=less, in_every_seed=True)
    (row,) = check_orderings(replace(STUDY, orderings=(ordering,)), results())
    assert (row.verdict, row.measured) == (verdict, f"{counted} seeds")
    few = replace(results(), trials=tuple(trial for trial in results().trials if trial.seed < 5))
    (row,) = check_orderings(replace(STUDY, orderings=(ordering,)), few)
    assert row.verdict == "undecided", "four seeds that agree do so by chance once in eight times"
    one = replace(results(), trials=tuple(trial for trial in results().trials if trial.variant != "base"))
    (row,) = check_orderings(replace(STUDY, orderings=(replace(ordering, more="base"),)), one)
    assert row.verdict == "undecided", "no seed of both finished"


def test_longer_text_is_compared_by_its_loss() -> None:
    """The loss there is 2 + seed in every variant, and the test split has none to grow from."""
    study = replace(STUDY, orderings=(Ordering("alike", "F", alike=("base", "worse"), on="longer-7"),))
    (row,) = check_orderings(study, results())
    assert (row.measured, row.verdict) == ("base − worse, longer-7: +0 [+0, +0]", "reproduced (equal within ±0.01)")


def test_seeds_are_paired_by_their_number() -> None:
    """Of six seeds one variant lost the first and the other the last: four pair, and one more makes five."""
    holds = replace(STUDY, orderings=(Ordering("holds", "A", more="better", less="base"),))
    made = results(lost=("better",))
    (row,) = check_orderings(holds, made)
    assert row.verdict == "reproduced"
    values = {trial.key: trial.items_N.mean() for trial in made.trials if trial.finished}
    mean = fmean(values["better", seed] - values["base", seed] for seed in range(2, 7))
    assert row.measured.startswith(f"better − base, score: {mean:+.3g} [")
    apart = replace(made, trials=tuple(trial for trial in made.trials if trial.key != ("base", 6)))
    (row,) = check_orderings(holds, apart)
    assert row.verdict == "undecided: too few seeds of both finished (4 of at least 5)" and not row.measured


def test_an_ordering_of_what_was_not_trained_is_left_out() -> None:
    """It was not tried, and is not undecided; the others hold together without it."""
    untried = replace(STUDY, orderings=(*STUDY.orderings, Ordering("untried", "F", more="better", less="absent")))
    assert check_orderings(untried, results()) == check_orderings(STUDY, results())
    assert tally_orderings(untried, results()).startswith("5 orderings")


def test_what_was_measured_inside_is_compared_by_seed() -> None:
    """Every trial has a loudness of 1 before and of 2 after training; here that of “better” is 5 + seed after it."""
    made = results()
    louder = tuple(
        replace(trial, inside=replace(trial.measured, after={"loud": 5.0 + trial.seed}))
        if trial.variant == "better"
        else trial
        for trial in made.trials
    )
    orderings = [
        Ordering("louder", "A", more="better", less="base", on=f"{when}: loud") for when in ("before", "after")
    ]
    before, after = check_orderings(replace(STUDY, orderings=tuple(orderings)), replace(made, trials=louder))
    assert (before.verdict, after.verdict) == ("undecided", "reproduced")
    assert after.measured.startswith("better − base, after: loud: +6.5 [")  # of six seeds, 5 + 3.5 against 2
    alike = Ordering("as loud", "B", alike=("same", "base"), on="after: loud")
    with pytest.raises(ConfigError, match="no margin was set for 'after: loud'"):
        check_orderings(replace(STUDY, orderings=(alike,)), made)
