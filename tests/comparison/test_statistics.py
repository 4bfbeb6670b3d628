"""Against hand-computed cases, closed forms, and simulation: the tool claims what it holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clockhands.comparison.statistics import (
    detectable,
    difference,
    interquartile_mean,
    probability_of_improvement,
    standard_error,
)
from clockhands.comparison.verdicts import describe_difference
from clockhands.errors import UsageError


def test_with_one_item_the_interval_is_the_paired_t_interval() -> None:
    ours, theirs = np.array([[3.0], [5.0], [4.0], [8.0], [6.0]]), np.array([[2.0], [3.0], [4.5], [5.0], [3.0]])
    found, known = difference(ours, theirs), stats.ttest_rel(ours[:, 0], theirs[:, 0])
    low, high = known.confidence_interval(0.95)
    assert found.value == pytest.approx(1.7)
    assert (found.low, found.high) == pytest.approx(
        (low, high), abs=0.04 * (high - low)
    )  # the error is drawn, not computed
    assert found.p == pytest.approx(known.pvalue, rel=0.15)


def test_the_error_is_that_of_two_way_clustering() -> None:
    rng = np.random.default_rng(0)
    gap_SN = rng.normal(0, 2, (8, 1)) + rng.normal(0, 3, (1, 150)) + rng.normal(0, 5, (8, 150))
    means = [stats.sem(gap_SN.mean(axis=axis)) ** 2 for axis in (0, 1)]
    rest = gap_SN - gap_SN.mean(0) - gap_SN.mean(1, keepdims=True) + gap_SN.mean()
    both = (rest**2).sum() / (7 * 149) / gap_SN.size
    assert standard_error(gap_SN)[0] == pytest.approx(math.sqrt(sum(means) - both), rel=0.06)


def test_several_comparisons_widen_the_interval_as_bonferroni_says() -> None:
    gap_SN = np.random.default_rng(1).normal(1, 2, (6, 40))
    one, five = (difference(gap_SN, np.zeros_like(gap_SN), m) for m in (1, 5))
    freedom = standard_error(gap_SN)[1]
    assert (five.high - five.value) / (one.high - one.value) == pytest.approx(
        stats.t.ppf(1 - 0.005, freedom) / stats.t.ppf(1 - 0.025, freedom)
    )


def test_equal_scores_have_no_spread() -> None:
    same = np.full((5, 30), 7.0)
    found = difference(same, same)
    assert (found.value, found.low, found.high, found.p, found.detectable) == (0, 0, 0, 1, 0)
    kind, sentence = describe_difference(found, 5, higher_is_better=True)
    assert (kind, sentence) == ("no difference", "no difference: the same on every test item of every seed")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="not paired"):
        difference(np.zeros((5, 3)), np.zeros((4, 3)))
    with pytest.raises(UsageError, match="1 seed has no spread"):
        difference(np.ones((1, 3)), np.zeros((1, 3)))


def test_detectable_is_seen_with_the_power_it_names() -> None:
    """The power of a t test of 9 pairs for an effect of 1.0 standard deviations is 0.7474 (G*Power: 0.75)."""
    sample = 9
    effect = detectable(1 / math.sqrt(sample), sample - 1, power=0.7474)
    assert effect == pytest.approx(1.0, abs=0.01)


@given(st.integers(0, 2**32 - 1), st.floats(0, 4), st.integers(1, 40))
def test_p_and_interval_never_disagree(seed: int, shift: float, comparisons: int) -> None:
    gap = np.random.default_rng(seed).normal(shift, 1, (5, 6))
    found = difference(gap, np.zeros_like(gap), comparisons)
    assert (found.adjusted < 0.05) == found.significant
    assert found.adjusted == min(1.0, found.p * comparisons)


def test_shares_are_never_further_apart_than_a_hundred() -> None:
    apart = np.array([[100.0], [0.0], [100.0], [100.0], [100.0]])
    found = difference(apart, np.zeros_like(apart), 6)
    assert found.high > 100 and found.within(100.0).high == 100 and found.within(100.0).low == found.low
    said = describe_difference(found, 5, higher_is_better=True, most=100.0)[1]
    assert said == "inconclusive: the seeds vary too much to detect any difference"


def test_middle_half_and_probability_by_hand() -> None:
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0, 4.0, 5.0, -50.0])) == 2.5
    assert probability_of_improvement(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == 0.875
    assert probability_of_improvement(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == 0.125
