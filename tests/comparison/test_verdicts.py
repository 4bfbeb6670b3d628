"""Verdicts are sentences with their numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clockhands.comparison.statistics import (
    difference,
)
from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import describe_difference, judge
from tests.comparison.planted import results


def test_the_planted_truth_is_found() -> None:
    judged = {verdict.variant: verdict for verdict in judge(results())}
    assert judged["base"].sentence == "the baseline"
    assert judged["better"].sentence.startswith("better by 1") and judged["better"].probability == 1
    assert judged["worse"].sentence.startswith("worse by 1") and judged["worse"].probability == 0
    assert judged["same"].sentence.startswith("no significant difference (")
    assert judged["better"].difference is not None and judged["better"].difference.comparisons == 3
    assert judged["better"].difference.adjusted < 0.01 < judged["same"].difference.adjusted


def test_two_seeds_are_too_few() -> None:
    assert {verdict.sentence for verdict in judge(results(seeds=2))[1:]} == {"too few seeds to tell (2 of at least 5)"}
    assert judge(results(seeds=1))[1].sentence == "too few seeds to tell (1 of at least 5)"
    assert conclude(results(seeds=2))["compare.verdict"].light == "warn"


def test_verdicts_are_sentences_with_their_numbers() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 2, (6, 100))
    zeros = np.zeros_like(noise)
    up, down, none = (difference(shift + noise, zeros) for shift in (5, -5, -noise.mean()))
    better = describe_difference(up, 6, higher_is_better=True)[1]
    assert better == f"better by {up.value:.1f} [{up.low:.1f}, {up.high:.1f}]"
    assert describe_difference(up, 6, higher_is_better=False)[0] == "worse"
    worse = describe_difference(down, 6, higher_is_better=True)[1]
    assert worse == f"worse by {-down.value:.1f} [{-down.high:.1f}, {-down.low:.1f}]"
    said = describe_difference(none, 6, higher_is_better=True, digits=2)[1]
    assert said == f"no significant difference ({none.detectable:.2f} points could have been detected)"
    narrow = replace(up, value=5.0, low=4.961, high=4.964)
    assert describe_difference(narrow, 6, higher_is_better=True)[1] == "better by 5.000 [4.961, 4.964]"
    assert describe_difference(up, 4, higher_is_better=True)[1] == "too few seeds to tell (4 of at least 5)"
    assert describe_difference(None, 1, higher_is_better=True)[1] == "too few seeds to tell (1 of at least 5)"
