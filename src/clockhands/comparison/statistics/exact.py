"""Exact tests and intervals of counts: shares of items at a ceiling, and of seeds that learned."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from clockhands.generation.score import bound_share

ALPHA = 0.05
"""The error of an interval: it holds at 95 %."""
LEARNING_ALPHA = 0.03
"""The error of the test of how many seeds learned: it is one more test beside that of the scores, and both together
should be false in at most 7 of 100 comparisons."""
MOST_RANKED = 60
"""Values up to which a rank test goes over all of their divisions in two."""
DIVISIONS = 200_000
"""Divisions that are drawn at random where there are more values."""
LOWEST_P = 1e-12
"""Smaller ones are not told apart."""


def bound_difference(ours: float, theirs: float, count: float, alpha: float = ALPHA) -> tuple[float, float]:
    """Return an interval of the difference of two shares of the same items, from the items on which they differ.

    ``ours``, ``theirs``: shares of items that only the one or only the other has right. Either share has an exact
    interval at 1 - α/2, so that both hold together at 1 - α.
    """
    (our_low, our_high), (their_low, their_high) = (bound_share(share, count, alpha / 2) for share in (ours, theirs))
    return our_low - their_high, our_high - their_low


def find_difference_p(ours: float, theirs: float, count: float) -> float:
    """Return the α at which ``bound_difference`` just reaches 0; 1 where it always holds 0."""
    more, less = max(ours, theirs), min(ours, theirs)

    def distance(alpha: float) -> float:
        return bound_difference(more, less, count, alpha)[0]

    if distance(1.0) <= 0:
        return 1.0
    if distance(LOWEST_P) >= 0:
        return LOWEST_P
    return float(optimize.brentq(distance, LOWEST_P, 1.0, xtol=1e-9))


def compare_counts(
    counts: Sequence[tuple[int, int]], baseline: tuple[int, int], alpha: float = LEARNING_ALPHA
) -> list[float]:
    """Return for each (learned, of how many) the p of an exact test against the baseline's, for all of them together.

    Fisher's exact test (1935), two-sided. A comparison whose numbers could give no small p, as where all seeds of both
    learned, does not count among those that share the error (Tarone 1990).

    >>> compare_counts([(0, 5), (5, 5)], (5, 5))
    [0.007936507936507936, 1.0]
    """
    ps = [_compute_fisher(right, total, *baseline) for right, total in counts]
    # Tarone: the error is divided by the least m at which at most m comparisons could be significant at α/m.
    shared = next(m for m in range(1, len(ps) + 2) if sum(smallest <= alpha / m for _, smallest in ps) <= m)
    return [min(1.0, shared * p) if smallest <= alpha / shared else 1.0 for p, smallest in ps]


def compare_ranks(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p of the two-sided rank test, over all divisions of the values in two (Wilcoxon 1945).

    It is exact up to ``MOST_RANKED`` values; of more, ``DIVISIONS`` divisions are drawn at random.
    It holds whatever the values are drawn from, infinite ones too. That seeds of two variants share data and order, and
    are compared as if they did not, makes the p larger, not smaller. 1 for no value.

    >>> compare_ranks([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == 2 / 252
    True
    """
    if not len(ours) or not len(theirs):
        return 1.0
    ranks = stats.rankdata([*ours, *theirs])
    if not is_ranked_exactly(len(ours), len(theirs)):
        divided = ranks[: len(ours)], ranks[len(ours) :]
        test = stats.permutation_test(
            divided, lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)), vectorized=True, n_resamples=DIVISIONS,
            batch=20_000, alternative="greater", rng=0,
        )  # fmt: skip
        return float(test.pvalue)
    doubled = np.rint(2 * ranks).astype(int)  # the rank of a tie may be half of a whole number
    counts_R = _count_rank_sums(doubled.tolist(), len(ours))
    # Mean ranks are as far apart as the sum of ours is from its expectation; times all values it is a whole number.
    distance_R = np.abs(len(ranks) * np.arange(len(counts_R)) - len(ours) * int(doubled.sum()))
    observed = distance_R[int(doubled[: len(ours)].sum())]
    return float(counts_R[distance_R >= observed].sum() / counts_R.sum())


def is_ranked_exactly(ours: int, theirs: int) -> bool:
    """Tell whether ``compare_ranks`` of so many against so many values goes over all divisions, and so is exact."""
    return ours + theirs <= MOST_RANKED


def _count_rank_sums(ranks: Sequence[int], chosen: int) -> np.ndarray:
    """Return how many choices of ``chosen`` of the whole numbers ``ranks`` have each sum, from 0 on.

    Each number in turn is left out or added to all choices without it (Streitberg & Roehmel 1986).
    """
    counts_CR = np.zeros((chosen + 1, sum(ranks) + 1))
    counts_CR[0, 0] = 1.0
    for rank in ranks:
        counts_CR[1:, rank:] += counts_CR[:-1, : counts_CR.shape[1] - rank].copy()
    return counts_CR[chosen]


@lru_cache(maxsize=10_000)
def _compute_fisher(right: int, total: int, base_right: int, base_total: int) -> tuple[float, float]:
    """Return the p of a table, and the smallest that any table of the same margins has."""
    learned = right + base_right
    if not total or not base_total:
        return 1.0, 1.0

    def p_of(hits: int) -> float:
        table = [[hits, total - hits], [learned - hits, base_total - learned + hits]]
        return float(stats.fisher_exact(table).pvalue)

    return p_of(right), min(p_of(max(0, learned - base_total)), p_of(min(learned, total)))
