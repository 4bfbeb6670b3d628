"""Seeds that learned, did not, or diverged: counted from planted scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from clockhands.comparison.learning import Learning, classify_seeds, compare_seeds, find_threshold
from clockhands.comparison.verdicts import judge
from clockhands.errors import UsageError
from tests.comparison.planted import results, shares


def test_seeds_are_told_apart_by_a_share_of_the_best() -> None:
    made = shares({"base": [0.9, 0.9, 0.9, 0.9, 0.9], "torn": [0.9, 0.02, None, 0.85, 0.01]})
    threshold = find_threshold(made)
    assert threshold is not None and 15 < threshold < 20
    torn = classify_seeds(made, "torn", threshold)
    assert torn == Learning(learned=(1, 4), unlearned=(2, 5), diverged=(3,))
    assert torn.counts == (2, 5) and torn.mixed and not torn.complete and torn.scored == (1, 4)
    assert classify_seeds(made, "base", threshold).complete


def test_the_plan_decides_where_it_says_so() -> None:
    rates = {"base": [0.9] * 5, "half": [0.5, 0.9, 0.5, 0.9, 0.5]}
    assert classify_seeds(shares(rates), "half", find_threshold(shares(rates))).complete
    strict = shares(rates, learned=70.0)
    assert find_threshold(strict) == 70.0
    assert classify_seeds(strict, "half", 70.0).counts == (2, 5)


def test_a_threshold_through_seeds_that_are_alike_divides_nothing() -> None:
    """All at a level of their own, which happens to be a fifth of the best: their mean decides for all of them."""
    alike = {"base": [1.0] * 5, "above": [0.19, 0.21, 0.22, 0.2, 0.21], "below": [0.17, 0.19, 0.21, 0.18, 0.19]}
    made = shares(alike, items=300)
    threshold = find_threshold(made)
    assert threshold == pytest.approx(20.0)
    assert classify_seeds(made, "above", threshold).counts == (5, 5)
    assert classify_seeds(made, "below", threshold).counts == (0, 5)
    apart = shares({**alike, "above": [0.02, 0.21, 0.22, 0.2, 0.21]}, items=300)
    assert classify_seeds(apart, "above", threshold).mixed
    strict = shares(alike, items=300, learned=20.0)
    assert classify_seeds(strict, "above", 20.0).mixed, "the plan's own bar is taken at its word"


def test_where_nobody_learned_a_share_of_the_best_means_nothing() -> None:
    made = shares({"base": [0.0] * 5, "other": [0.0, 0.004, 0.0, 0.0, 0.0]})
    assert find_threshold(made) == 1.0
    assert classify_seeds(made, "other", 1.0).counts == (0, 5)


@pytest.mark.parametrize(
    ("learning", "text"),
    [
        (Learning((1, 2, 3, 4, 5)), "5 of 5, at least 48 %"),
        (Learning((), (1, 2, 3), (4, 5)), "0 of 5, at most 52 %"),
        (Learning((1, 2, 3, 4), (5,)), "4 of 5, 28 to 99 %"),
        (Learning(), "none ended"),
    ],
)
def test_a_share_is_told_with_its_exact_interval(learning: Learning, text: str) -> None:
    assert str(learning) == text
    learned, total = learning.counts
    if total:
        known = stats.binomtest(learned, total).proportion_ci(0.95, "exact")
        assert learning.interval == pytest.approx((100 * known.low, 100 * known.high))


def test_seeds_are_compared_on_items_that_they_share() -> None:
    """An analysis of variance with blocks, by hand: rows 1, 2, 3 / 2, 3, 4 / 4, 5, 7 have the means 2, 3 and 16/3.

    Squares between seeds are 158/9 and what is left over is 4/9, so that F is (79/9) / (1/9) = 79.
    """
    items = np.array([[1.0, 2, 3], [2, 3, 4], [4, 5, 7]])
    rows, columns = items.mean(axis=1), items.mean(axis=0)
    rest = sum((items[i, j] - rows[i] - columns[j] + items.mean()) ** 2 for i in range(3) for j in range(3))
    known = (3 * rows.var(ddof=1)) / (rest / 4)
    assert known == pytest.approx(79)
    assert compare_seeds(items) == pytest.approx(stats.f.sf(known, 2, 4))
    assert stats.f_oneway(*items).pvalue > 30 * compare_seeds(items), "hard and easy items hide the seeds"


def test_the_comparison_of_seeds_is_wrong_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    items = [rng.normal(0, 9, 60) + rng.normal(0, 1, (5, 60)) for _ in range(1500)]
    wrong = np.mean([compare_seeds(scores) < 0.05 for scores in items])
    assert 0.03 < wrong < 0.075
    twins = [np.repeat(scores[:, :30], 2, axis=1) for scores in items]
    groups = np.repeat(np.arange(30), 2).tolist()
    assert np.mean([compare_seeds(scores, groups) < 0.05 for scores in twins]) < 0.075
    assert np.mean([compare_seeds(scores) < 0.05 for scores in twins]) > 0.2, "twins that count as two deceive"


def test_seeds_without_chance_are_alike_or_not_and_large_groups_weigh_more() -> None:
    assert compare_seeds(np.full((5, 4), 2.0)) == 1.0
    assert compare_seeds(np.arange(5.0)[:, None] + np.zeros((5, 4))) == 0.0
    assert compare_seeds(np.array([[1.0], [2.0], [3.0]])) == 1.0, "of one item nothing is shown"
    rng = np.random.default_rng(6)
    items = np.hstack([np.repeat(rng.normal(0, 0.1, (5, 3)), 30, axis=1), rng.normal(0, 0.1, (5, 10))])
    items[3:, :90] += 6.0
    groups = [*np.repeat(np.arange(3), 30).tolist(), *range(3, 13)]
    assert compare_seeds(items, groups) < 0.05


def test_trials_with_other_numbers_of_items_are_refused_with_their_seeds() -> None:
    """As where an older version counted windows, and the newer one counts stretches of them."""
    made = results()
    first, *others = made.trials
    mixed = replace(made, trials=(replace(first, items=first.items[:7] if first.items else None), *others))
    with pytest.raises(UsageError, match=rf"the trials of '{first.variant}' .*seed {first.seed} has 7,.*new folder"):
        judge(mixed)
