"""Differences are told as their checks found them, and growths on longer text are judged over seeds."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from gaps import describe_gap, judge_longer_text

from clockhands.comparison import Comparison
from clockhands.comparison.trial import LongerText
from clockhands.studies.soundness import check_orderings
from clockhands.studies.study import Ordering
from tests.comparison.planted import results
from tests.studies.test_soundness import ORDERINGS, STUDY


def test_a_difference_is_told_with_the_interval_that_its_check_rests_on() -> None:
    """A gap is written as its check found it; more comparisons together make it wider."""
    made = results()
    told = describe_gap(ORDERINGS[0][0], made, 1)
    (row,) = check_orderings(replace(STUDY, orderings=(ORDERINGS[0][0],)), made)
    value, low, high = (float(number) for number in re.findall(r"[\d.]+", told))
    assert row.measured == f"better − base, score: {value:+.3g} [{low:+.3g}, {high:+.3g}]"
    wide = [float(number) for number in re.findall(r"[\d.]+", describe_gap(ORDERINGS[0][0], made, 20))]
    assert wide[1] < low < value == wide[0] < high < wide[2]


def test_a_claim_of_equality_is_told_with_both_ends() -> None:
    made, alike = results(), ORDERINGS[3][0]
    assert re.fullmatch(r"from −[\d.]+ to \+[\d.]+ points", describe_gap(alike, made, 1))
    wide = replace(made, plan=replace(made.plan, margin=6.0))
    assert re.fullmatch(r"from −[\d.]+ to \+[\d.]+ points, within ±6", describe_gap(alike, wide, 1))
    few = replace(made, trials=made.trials[:3])
    assert describe_gap(alike, few, 1) == "(not measured)"


@pytest.mark.parametrize(
    ("growths", "verdict"),
    [
        ((0.10, 0.12, 0.09, 0.11, 0.10), "grows"),
        ((-0.01, -0.012, -0.009, -0.011, -0.01), "holds"),
        ((0.001, 0.002, 0.0, 0.001, 0.002), "grows"),  # little, and more than nothing
        ((0.05, -0.05, 0.04, -0.04, 0.0), "undecided"),
        ((0.1, 0.1, 0.1, 0.1), "undecided"),
    ],
)
def test_growth_on_longer_text_is_judged_over_seeds(growths: tuple[float, ...], verdict: str) -> None:
    made = grow(growths)
    assert judge_longer_text(made, "base") == verdict
    assert judge_longer_text(made, "better") == "undecided", "no seed of it"


def grow(growths: tuple[float, ...]) -> Comparison:
    """Results of one variant, whose loss grows by so much with each seed."""
    made = results(seeds=len(growths))
    trials = tuple(
        replace(trial, scores={"loss": 2.0}, longer={"x": LongerText(loss=9.0), "y": LongerText(loss=2.0 + growth)})
        for trial, growth in zip(made.get_trials("base"), growths, strict=True)
    )
    return replace(made, trials=trials)


def test_growth_is_judged_on_the_longest_text_or_on_a_named_one() -> None:
    comparison = grow((0.0, 0.001, -0.001, 0.0, 0.0))
    assert [judge_longer_text(comparison, "base", split=split) for split in ("", "y", "x")] == [
        "holds",
        "holds",
        "grows",
    ]


def test_many_growths_together_are_judged_by_wider_intervals() -> None:
    """Growths of mean 0.1 and standard error 0.035: t is 2.83, beyond 2.78 for one, and short of 4.6 for five."""
    comparison = grow((0.0, 0.05, 0.1, 0.15, 0.2))
    assert judge_longer_text(comparison, "base") == "grows"
    assert judge_longer_text(comparison, "base", 5) == "undecided"


@pytest.mark.parametrize(("more", "less", "counted"), [("better", "worse", "6 of 6"), ("worse", "better", "0 of 6")])
def test_a_claim_on_every_seed_is_told_by_the_seeds_in_which_it_holds(more: str, less: str, counted: str) -> None:
    assert describe_gap(Ordering("in each", more=more, less=less, in_every_seed=True), results(), 1) == counted
