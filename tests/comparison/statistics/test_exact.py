"""Exact intervals and tests, against published figures, other libraries and the counting of all cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clockhands.comparison.statistics.exact import (
    LEARNING_ALPHA,
    bound_difference,
    compare_counts,
    compare_ranks,
    find_difference_p,
)


def test_the_interval_of_a_difference_covers_the_truth() -> None:
    """Items that only the one, or only the other, has right: 0.4 % and 0.1 % of 300; the difference is 0.3 %."""
    counts = np.random.default_rng(0).multinomial(300, [0.004, 0.001, 0.995], 2000)
    bounds = [bound_difference(ours / 300, theirs / 300, 300) for ours, theirs, _ in counts]
    assert np.mean([low <= 0.003 <= high for low, high in bounds]) >= 0.95


@given(st.integers(0, 30), st.integers(0, 30), st.integers(60, 300))
def test_the_p_of_a_difference_is_where_its_interval_touches_0(ours: int, theirs: int, count: int) -> None:
    p = find_difference_p(ours / count, theirs / count, count)
    if 1e-9 < p < 0.5:
        below, above = (bound_difference(ours / count, theirs / count, count, p * share) for share in (0.99, 1.01))
        assert below[0] <= 0 <= below[1] and not above[0] <= 0 <= above[1]


def test_five_of_five_against_none_is_a_finding() -> None:
    """Two of the 252 ways to choose five of ten seeds are as extreme."""
    assert compare_counts([(0, 5)], (5, 5)) == [pytest.approx(2 / 252)]
    assert compare_counts([(1, 5)], (5, 5))[0] > LEARNING_ALPHA, "12 of the 252 ways are as extreme"


def test_comparisons_that_can_show_nothing_do_not_count() -> None:
    """Forty variants learned with all seeds, as the baseline did: the one that never did is found among them."""
    ps = compare_counts([(5, 5)] * 40 + [(0, 5)], (5, 5))
    assert ps[:40] == [1.0] * 40 and ps[40] == pytest.approx(2 / 252)
    assert compare_counts([(0, 5)] * 3, (5, 5)) == [pytest.approx(6 / 252)] * 3
    assert compare_counts([(0, 5)] * 4, (5, 5)) == [1.0] * 4, "four share the error, and 8 / 252 is above it"
    assert compare_counts([(0, 0), (0, 5)], (5, 5)) == [1.0, pytest.approx(2 / 252)]


def test_equal_variants_that_fail_by_chance_are_seldom_told_apart() -> None:
    rng = np.random.default_rng(1)
    learned = rng.binomial(10, 0.8, (1000, 12))
    false = [
        min(compare_counts([(int(k), 10) for k in row[1:]], (int(row[0]), 10))) < LEARNING_ALPHA for row in learned
    ]
    assert np.mean(false) <= 0.04


def test_the_rank_test_is_that_of_scipy_and_of_counting() -> None:
    assert compare_ranks([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == pytest.approx(2 / 252)
    assert compare_ranks([1, 1, 1], [1, 1, 1]) == 1.0
    assert compare_ranks([], [1]) == 1.0
    ours, theirs = [3.5, 8.0, 9.0, 11.0], [1.0, 4.0, 7.0, 10.0, 2.0]
    assert compare_ranks(ours, theirs) == pytest.approx(stats.mannwhitneyu(ours, theirs, method="exact").pvalue)


def test_the_rank_test_counts_every_division_where_values_are_equal() -> None:
    """By going over all 126 and 84 divisions: ties, and a value that is infinite."""
    for ours, theirs in (
        ([1.0, 2.0, 2.0, 5.0], [2.0, 3.0, 3.0, 5.0, math.inf]),
        ([7.0] * 3, [7.0, 1.0, 2.0, 2.0, 3.0, 9.0]),
    ):
        ranks = stats.rankdata([*ours, *theirs])
        divisions = [ranks[list(chosen)] for chosen in itertools.combinations(range(len(ranks)), len(ours))]
        distances = [abs(part.mean() - (ranks.sum() - part.sum()) / len(theirs)) for part in divisions]
        assert compare_ranks(ours, theirs) == pytest.approx(np.mean(np.array(distances) >= distances[0] - 1e-9))
