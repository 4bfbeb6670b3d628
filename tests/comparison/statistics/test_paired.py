"""Against hand-computed cases, closed forms, and simulation: the tool claims what it holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clockhands.comparison.statistics.paired import (
    bound_mean,
    compute_improvement_probability,
    compute_interquartile_mean,
    estimate_difference,
)
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.comparison.statistics.variance import count_effective_groups, estimate_parts, group_items
from clockhands.errors import DataError, UsageError


def test_with_one_item_the_interval_is_the_paired_t_interval() -> None:
    ours, theirs = np.array([[3.0], [5.0], [4.0], [8.0], [6.0]]), np.array([[2.0], [3.0], [4.5], [5.0], [3.0]])
    gap, known = estimate_difference(ours, theirs), stats.ttest_rel(ours[:, 0], theirs[:, 0])
    assert gap.value == pytest.approx(1.7)
    assert (gap.low, gap.high) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert gap.inner == pytest.approx(tuple(known.confidence_interval(0.90)))
    assert gap.p == pytest.approx(known.pvalue)


def test_the_error_is_that_of_two_way_clustering() -> None:
    rng = np.random.default_rng(0)
    gap_SN = rng.normal(0, 2, (8, 1)) + rng.normal(0, 3, (1, 150)) + rng.normal(0, 5, (8, 150))
    means = [stats.sem(gap_SN.mean(axis=axis)) ** 2 for axis in (0, 1)]
    rest = gap_SN - gap_SN.mean(0) - gap_SN.mean(1, keepdims=True) + gap_SN.mean()
    both = (rest**2).sum() / (7 * 149) / gap_SN.size
    assert estimate_difference(gap_SN, np.zeros_like(gap_SN)).error == pytest.approx(math.sqrt(sum(means) - both))


def test_the_error_is_that_of_resampling_seeds_and_groups() -> None:
    """The pigeonhole bootstrap (Owen 2007), drawn here; what chance adds in every cell is small beside the two."""
    rng = np.random.default_rng(6)
    twins = np.repeat(rng.normal(0, 30, (1, 60)), 2, axis=1)
    gap_SN = rng.normal(0, 3, (6, 1)) + twins + rng.normal(0, 2, (6, 120))
    rows, pairs = rng.integers(0, 6, (3000, 6)), rng.integers(0, 60, (3000, 60))
    means = [
        gap_SN[row][:, np.stack([2 * pair, 2 * pair + 1]).ravel()].mean() for row, pair in zip(rows, pairs, strict=True)
    ]
    grouped = estimate_difference(gap_SN, np.zeros_like(gap_SN), groups=[n // 2 for n in range(120)])
    alone = estimate_difference(gap_SN, np.zeros_like(gap_SN))
    assert grouped.items == 60 and grouped.value == pytest.approx(alone.value)
    assert grouped.error == pytest.approx(np.std(means), rel=0.1)
    assert grouped.error / alone.error == pytest.approx(math.sqrt(2), rel=0.1)


def test_groups_of_different_sizes_leave_the_mean_over_items() -> None:
    gap = np.random.default_rng(7).normal(0, 1, (5, 9))
    groups = [0, 0, 0, 1, 1, 2, 3, 4, 4]
    assert estimate_difference(gap, np.zeros_like(gap), groups=groups).value == pytest.approx(gap.mean())
    means_SG, sizes_G = group_items(gap, groups)
    assert sizes_G.tolist() == [3, 2, 1, 1, 2] and means_SG[:, 1] == pytest.approx(gap[:, 3:5].mean(axis=1))
    assert count_effective_groups(sizes_G) == pytest.approx(81 / 19)
    with pytest.raises(UsageError, match="8 group numbers were given for 9 test items"):
        group_items(gap, groups[:-1])


def test_several_comparisons_widen_the_interval_as_bonferroni_says() -> None:
    gap_SN = np.random.default_rng(1).normal(1, 2, (6, 40))
    single, five = (estimate_difference(gap_SN, np.zeros_like(gap_SN), m) for m in (1, 5))
    freedom = estimate_parts(gap_SN, np.ones(40))[1].freedom
    assert (five.high - five.value) / (single.high - single.value) == pytest.approx(
        stats.t.ppf(1 - 0.005, freedom) / stats.t.ppf(1 - 0.025, freedom)
    )


def test_equal_scores_have_no_spread() -> None:
    same = np.full((5, 30), 7.0)
    gap = estimate_difference(same, same)
    assert (gap.value, gap.low, gap.high, gap.p, gap.detectable) == (0, 0, 0, 1, 0)


def test_equal_shares_are_not_certain_to_be_equal_on_further_items() -> None:
    """None of 300 items differs: with 97.5 % fewer than 1 - (0.0125)^(1/300) = 1.45 % do, on either side."""
    right = np.full((5, 300), 100.0)
    gap = estimate_difference(right, right, top=100.0)
    assert (gap.low, gap.high) == pytest.approx((-1.45, 1.45), abs=0.01)
    assert gap.detectable is None and not gap.is_within(1.0) and gap.is_within(1.5)
    assert bound_mean(right, top=100.0) == pytest.approx((100 * 0.025 ** (1 / 300), 100.0))
    assert bound_mean(0 * right, top=100.0) == pytest.approx((0.0, 100 - 100 * 0.025 ** (1 / 300)))


def test_twins_count_once_in_exact_bounds() -> None:
    right = np.full((5, 300), 100.0)
    low, _ = bound_mean(right, top=100.0, groups=[n // 2 for n in range(300)])
    assert low == pytest.approx(100 * 0.025 ** (1 / 150))


def test_shares_that_differ_on_many_items_have_t_intervals() -> None:
    rng = np.random.default_rng(8)
    ours, theirs = (100.0 * (rng.random((5, 300)) < share) for share in (0.7, 0.5))
    for block in (1, 60):  # five blocks of many items that differ are few, and no ceiling
        plain = estimate_difference(ours, theirs, block=block)
        assert estimate_difference(ours, theirs, block=block, top=100.0) == plain and plain.items == 300 // block
        assert compare_with_baseline([ours] * 2, [theirs] * 2, block=block, top=100.0)[0].detectable
        assert bound_mean(ours, block=block, top=100.0) == pytest.approx(bound_mean(ours, block=block))


def test_a_ceiling_and_a_floor_are_no_closer_than_their_bounds_allow() -> None:
    """Two of 300 items wrong against one right: no seed differs from another, and further items may be others.

    By hand, from the exact bounds of 298 and of 1 in 300 (MOVER: Newcombe 1998, method 10).
    """
    high, low = np.full((5, 300), 100.0), np.zeros((5, 300))
    high[:, :2], low[:, 7] = 0.0, 100.0
    found = estimate_difference(high, low, top=100.0)
    top, floor = (100 * np.array(stats.binomtest(k, 300).proportion_ci(0.95, "exact")) for k in (298, 1))
    value = 100 * (298 - 1) / 300
    assert found.low == pytest.approx(value - math.hypot(100 * 298 / 300 - top[0], floor[1] - 100 / 300))
    assert found.inner[0] > found.low and found.detectable is None and found.significant
    two = compare_with_baseline([high, high], [low, low], top=100.0)
    assert two[0].low < found.low, "two comparisons together"
    few = high[:, :30].copy()
    few[:, :9] = 0.0
    apart = estimate_difference(few, 100.0 - few[:, ::-1], 42, top=100.0)
    assert not apart.significant and apart.adjusted >= 0.05
    turned = estimate_difference(low, high, top=100.0)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="not paired"):
        estimate_difference(np.zeros((5, 3)), np.zeros((4, 3)))
    with pytest.raises(UsageError, match="1 seed has no spread; an interval needs two at least"):
        estimate_difference(np.ones((1, 3)), np.zeros((1, 3)))
    hollow = np.ones((3, 9))
    hollow[1, 4] = hollow[2, :7] = np.nan
    with pytest.raises(
        DataError, match="no number for test item 4 of row 1; test items 0, 1, 2, 3, 4 and 2 more of row 2"
    ):
        estimate_difference(hollow, np.ones((3, 9)))


@given(st.integers(0, 2**32 - 1), st.floats(0, 4), st.integers(1, 40))
def test_p_and_interval_never_disagree(seed: int, shift: float, comparisons: int) -> None:
    gap = np.random.default_rng(seed).normal(shift, 1, (5, 6))
    drawn = estimate_difference(gap, np.zeros_like(gap), comparisons)
    assert (drawn.adjusted < 0.05) == drawn.significant
    assert drawn.adjusted == min(1.0, drawn.p * comparisons)


@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(1, 40))
def test_p_and_interval_never_disagree_at_a_ceiling(seed: int, wrong: int, comparisons: int) -> None:
    items = np.full((5, 100), 100.0)
    items[:, :wrong] = 100.0 * (np.random.default_rng(seed).random((5, wrong)) < 0.3)
    gap = estimate_difference(items, np.full((5, 100), 100.0), comparisons, top=100.0)
    assert (gap.adjusted < 0.05) == gap.significant


def test_shares_are_never_further_apart_than_a_hundred() -> None:
    apart = np.array([[100.0], [0.0], [100.0], [100.0], [100.0]])
    gap = estimate_difference(apart, np.zeros_like(apart), 6)
    assert gap.high > 100 and gap.within(100.0).high == 100 and gap.within(100.0).low == gap.low


def test_middle_half_and_probability_by_hand() -> None:
    assert compute_interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0, 4.0, 5.0, -50.0])) == 2.5
    assert compute_improvement_probability(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == 0.875
    assert compute_improvement_probability(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == 0.125
