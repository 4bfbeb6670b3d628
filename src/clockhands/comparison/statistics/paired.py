"""Is the difference real? Published methods, on seeds × test items.

Every variant is trained from the same seeds and judged on the same test items, so what is compared is the matrix of
paired differences: seed s, item n. Items that hang together (twins) are one group, and count as one. Seeds and groups
are both samples (another seed, another sentence): the variance of the mean is that of two-way clustering (Cameron,
Gelbach & Miller 2011, "Robust Inference With Multiway Clustering", Journal of Business & Economic Statistics 29), to
which the pigeonhole bootstrap tends (Owen 2007). Intervals are t intervals, on degrees of freedom after Satterthwaite
1946.

At a ceiling, where fewer than ``FEW`` groups tell two variants apart, or a variant from perfection, no variance can be
estimated; there the exact interval of a binomial share (``exact.py``) is taken where it is wider.

``simultaneous.py`` compares many variants with one baseline. ``estimate_difference`` with ``comparisons`` above 1
serves any other family of comparisons (Bonferroni; Dunn 1961).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from clockhands.comparison.statistics.exact import bound_difference, find_difference_p
from clockhands.comparison.statistics.variance import (
    GroupSizes,
    Matrix,
    VarianceParts,
    centre_error,
    count_effective_groups,
    estimate_parts,
    find_detectable,
    group_items,
    join_neighbours,
)
from clockhands.errors import DataError, UsageError
from clockhands.generation.score import bound_share
from clockhands.shapes import Float

MIN_SEEDS = 5
"""Fewer give no verdict: with four, a difference has to be 3.2 standard errors, so one bad seed decides."""
ALPHA = 0.05
"""The error of all intervals of a comparison together: they hold at 95 %."""
FEW = 10
"""Fewer groups of items that differ than these, and their count is too small for a normal approximation."""


@dataclass(frozen=True)
class PairedDifference:
    """A mean paired difference with its simultaneous 1 - α interval; ``items`` counts groups of test items.

    ``p`` is of this comparison alone, ``adjusted`` for all ``comparisons`` together; ``adjusted`` is below α where the
    interval excludes 0, and nowhere else. ``inner``: the 1 - 2α interval, by which equivalence is judged (two one-sided
    tests; Schuirmann 1987). ``detectable``: the smallest difference that has 80 % power to be found; None at a ceiling,
    where no variance can be estimated. ``block``: so many neighbouring items, or groups of them, count as one, because
    they hang together.
    """

    value: float
    low: float
    high: float
    error: float
    p: float
    adjusted: float
    inner: tuple[float, float]
    detectable: float | None
    seeds: int
    items: int
    comparisons: int = 1
    block: int = 1

    def within(self, reach: float) -> PairedDifference:
        """Return the same with its intervals cut at ±reach: two shares of 100 are never further than 100 apart."""
        inner = (max(self.inner[0], -reach), min(self.inner[1], reach))
        return replace(self, low=max(self.low, -reach), high=min(self.high, reach), inner=inner)

    def is_within(self, margin: float) -> bool:
        """Whether the variants are equivalent: both one-sided tests show a difference smaller than the margin."""
        return self.inner[0] > -margin and self.inner[1] < margin

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def estimate_difference(
    ours_SN: Matrix,
    theirs_SN: Float[np.ndarray, "R M"],
    comparisons: int = 1,
    alpha: float = ALPHA,
    *,
    groups: Sequence[int] | None = None,
    block: int = 1,
    top: float | None = None,
) -> PairedDifference:
    """Return the mean of ours - theirs, seed by seed and item by item.

    ``comparisons`` is m of the simultaneous level 1 - α/m. ``block``: so many neighbouring items, or groups of them,
    count as one. ``top``: scores are between 0 and this, so that exact bounds hold at a ceiling. Raises UsageError for
    matrices that are not paired and for one seed, DataError for items that are not numbers.
    """
    value, parts = estimate_gap(ours_SN, theirs_SN, groups, block)
    error, freedom, level = math.sqrt(parts.total), parts.freedom, alpha / comparisons
    # Two-sided at α/m, and one-sided at α/m on either side for equivalence: that is 1 - 2α.
    reach, inner = (float(stats.t.ppf(1 - share, freedom)) * error for share in (level / 2, level))
    p = float(2 * stats.t.sf(abs(value) / error, freedom)) if error else float(value == 0)
    plain = PairedDifference(
        value, value - reach, value + reach, error, p, min(1.0, p * comparisons), (value - inner, value + inner),
        find_detectable(centre_error(error, freedom), freedom, comparisons, alpha), parts.seeds, parts.groups,
        comparisons, block,
    )  # fmt: skip
    return widen(plain, ours_SN, theirs_SN, groups, top, alpha)


def _pair_items(
    ours_SN: Matrix, theirs_SN: Float[np.ndarray, "R M"], groups: Sequence[int] | None, block: int = 1
) -> tuple[Matrix, GroupSizes]:
    """Return the paired differences by group of items (``block`` neighbours of which are one), S × G, and their sizes.

    Raises as ``estimate_difference``.
    """
    if ours_SN.shape != theirs_SN.shape:
        raise UsageError(f"{ours_SN.shape} and {theirs_SN.shape} seeds × items are not paired")
    seeds, _ = ours_SN.shape
    if seeds < 2:
        raise UsageError(f"{seeds} seed has no spread; an interval needs two at least")
    gap_SN = ours_SN - theirs_SN
    if not np.isfinite(gap_SN).all():
        raise DataError(f"there is no number for {name_cells(gap_SN)} (counted from 0)")
    return group_items(gap_SN, join_neighbours(gap_SN.shape[1], groups, block))


def estimate_gap(
    ours_SN: Matrix, theirs_SN: Matrix, groups: Sequence[int] | None, block: int
) -> tuple[float, VarianceParts]:
    """Return the mean of ours - theirs, and what its variance is made of. Raises as ``estimate_difference``.

    Neighbouring blocks still hang together where they touch. Their variance is short by about as much as that of blocks
    of half the length is short of it, since what is missing falls with the length (the generalised jackknife).
    """
    value, parts = estimate_parts(*_pair_items(ours_SN, theirs_SN, groups, block))
    if block > 1:
        half = estimate_parts(*_pair_items(ours_SN, theirs_SN, groups, block // 2))[1]
        parts = replace(parts, item=parts.item + max(parts.item - half.item, 0.0))
    return value, parts


def name_cells(items_SN: Matrix, most: int = 5) -> str:
    """Return where a matrix holds no finite number, in words: the first few test items of each row."""
    rows = []
    for row, items_N in enumerate(items_SN):
        places = np.flatnonzero(~np.isfinite(items_N))
        if len(places):
            more = f" and {len(places) - most} more" if len(places) > most else ""
            rows.append(f"test item{'s' * (len(places) > 1)} {', '.join(map(str, places[:most]))}{more} of row {row}")
    return "; ".join(rows)


def widen(
    gap: PairedDifference,
    ours_SN: Matrix,
    theirs_SN: Matrix,
    groups: Sequence[int] | None,
    top: float | None,
    alpha: float,
) -> PairedDifference:
    """Return a difference that is no narrower than exact bounds at a ceiling allow; ``top`` of None: there is none."""
    if top is None:
        return gap
    # Few groups that differ are a ceiling; few blocks of many that do are not.
    if int((_pair_items(ours_SN, theirs_SN, groups)[0] != 0).any(axis=0).sum()) < FEW:
        gap = _join_bounds(
            gap, *_bound_at_ceiling(gap, *_pair_items(ours_SN, theirs_SN, groups, gap.block), top, alpha)
        )
    if {_find_extreme(scores_SN, groups, top) for scores_SN in (ours_SN, theirs_SN)} == {"ceiling", "floor"}:
        gap = _join_bounds(gap, *_bound_between_extremes(gap, ours_SN, theirs_SN, groups, top, alpha))
    return gap


def _join_bounds(
    gap: PairedDifference, outer: tuple[float, float], inner: tuple[float, float], p: float
) -> PairedDifference:
    """Return a difference whose intervals hold these bounds too, and whose p is no smaller; nothing is promised."""
    return replace(
        gap,
        low=min(gap.low, outer[0]),
        high=max(gap.high, outer[1]),
        inner=(min(gap.inner[0], inner[0]), max(gap.inner[1], inner[1])),
        p=max(gap.p, p),
        adjusted=max(gap.adjusted, min(1.0, p * gap.comparisons)),
        detectable=None,
    )


def _bound_at_ceiling(
    gap: PairedDifference, gap_SG: Matrix, sizes_G: GroupSizes, top: float, alpha: float
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the exact bounds of a difference of shares at 1 - α/m and at 1 - 2α/m, with the p.

    A group counts once, with the mean over seeds of what it says for either side, because the seeds repeat the same
    items: what is bounded is the difference over further items.
    """
    count = count_effective_groups(sizes_G)
    weights_G = sizes_G / sizes_G.sum()
    # Items that only the one has right, and items that only the other has, as shares.
    ours, theirs = (float((part.mean(axis=0) * weights_G).sum()) / top for part in (gap_SG.clip(0), (-gap_SG).clip(0)))
    ends = [bound_difference(ours, theirs, count, share * alpha / gap.comparisons) for share in (1, 2)]
    (low, high), (inner_low, inner_high) = ends
    p = max(gap.p, find_difference_p(ours, theirs, count))
    return (top * low, top * high), (top * inner_low, top * inner_high), p


def _bound_between_extremes(
    gap: PairedDifference, ours_SN: Matrix, theirs_SN: Matrix, groups: Sequence[int] | None, top: float, alpha: float
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the same of a score at the ceiling less one at the floor, or the reverse.

    Both hardly vary, so that the variance of their difference cannot be estimated, and pairing items does not make it
    smaller. The bounds of both scores are joined by MOVER (Newcombe 1998, method 10; Zou & Donner 2008).
    """
    ends = []
    for share in (1, 2):
        (our_low, our_high), (their_low, their_high) = (
            bound_mean(scores, share * alpha / gap.comparisons, groups=groups, block=gap.block, top=top)
            for scores in (ours_SN, theirs_SN)
        )
        ours, theirs = float(ours_SN.mean()), float(theirs_SN.mean())
        # MOVER: the distances to the bounds of both scores are added as standard errors are, √(a² + b²).
        low = gap.value - math.hypot(ours - our_low, their_high - theirs)
        ends.append((low, gap.value + math.hypot(our_high - ours, theirs - their_low)))
    # p and interval never disagree: α where the interval holds 0, no bound where it does not.
    low, high = min(gap.low, ends[0][0]), max(gap.high, ends[0][1])
    return ends[0], ends[1], 0.0 if low > 0 or high < 0 else alpha / gap.comparisons


def _find_extreme(scores_SN: Matrix, groups: Sequence[int] | None, top: float) -> str:
    """Return the end, ``ceiling`` or ``floor``, from which fewer than ``FEW`` groups of items are away; else ""."""
    scores_SG, _ = _pair_items(scores_SN, np.zeros_like(scores_SN), groups)
    if int((scores_SG < top).any(axis=0).sum()) < FEW:
        return "ceiling"
    return "floor" if int((scores_SG > 0).any(axis=0).sum()) < FEW else ""


def compute_interquartile_mean(scores_S: Float[np.ndarray, " S"]) -> float:
    """Return the mean of the middle half of the seeds (Agarwal et al. 2021)."""
    return float(stats.trim_mean(scores_S, 0.25))


def compute_improvement_probability(ours_S: Float[np.ndarray, " S"], theirs_R: Float[np.ndarray, " R"]) -> float:
    """Return P(a seed of ours beats a seed of theirs), ties counting half (Agarwal et al. 2021; Mann-Whitney U)."""
    gap_SR = np.subtract.outer(ours_S, theirs_R)
    return float((gap_SR > 0).mean() + (gap_SR == 0).mean() / 2)


def bound_mean(
    scores_SN: Matrix,
    alpha: float = ALPHA,
    *,
    groups: Sequence[int] | None = None,
    block: int = 1,
    top: float | None = None,
) -> tuple[float, float]:
    """Return the interval of a mean over seeds and items.

    ``block``: so many neighbouring items, or groups of them, count as one. ``top``: scores are between 0 and this.
    Where fewer than ``FEW`` groups of items are short of it in any seed (or above 0), the exact interval of a share
    over the groups is taken where it is wider. Raises as ``estimate_difference``.
    """
    mean, parts = estimate_gap(scores_SN, np.zeros_like(scores_SN), groups, block)
    reach = float(stats.t.ppf(1 - alpha / 2, parts.freedom)) * math.sqrt(parts.total)
    if top is None:
        return mean - reach, mean + reach
    low, high = max(mean - reach, 0.0), min(mean + reach, top)
    if _find_extreme(scores_SN, groups, top):
        sizes_G = _pair_items(scores_SN, np.zeros_like(scores_SN), groups, block)[1]
        bounds = bound_share(mean / top, count_effective_groups(sizes_G), alpha)
        low, high = min(low, top * bounds[0]), max(high, top * bounds[1])
    return low, high
