"""Reported orderings, checked on results whose truth is planted: base 60 %, better 75 %, same 60 %, worse 45 %."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.literature import check_orderings, tally_orderings
from clockhands.studies.study import Ordering
from tests.comparison.planted import results

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
    assert (row.measured, row.verdict) == (
        "base − worse, longer-7: +0 [+0, +0]",
        "reproduced (equal within ±0.01)",
    )


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


def test_a_split_that_no_trial_has_is_a_mistake_of_the_study() -> None:
    with pytest.raises(KeyError):
        check_orderings(replace(STUDY, orderings=(Ordering("x", "y", more="base", less="same", on="no-9"),)), results())


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
