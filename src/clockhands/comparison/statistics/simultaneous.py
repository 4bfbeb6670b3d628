"""Many variants against one baseline: simultaneous intervals by the largest of their t statistics (max-t).

The differences share a baseline, and with it a part of their chance; the largest of their |t| is therefore smaller than
that of as many independent ones, and its distribution is drawn (Dunnett 1955; Westfall & Young 1993, single step, so
that interval and verdict agree): seeds paired as in the comparison, as many seeds, variants and degrees of freedom.
Permuting the seeds themselves cannot do this: five have 32 changes of sign.

With five seeds a variance has four degrees of freedom, and the largest of 42 |t| is above 8 once in twenty times by
variances that came out small by accident. Variants tell of each other's variance (Smyth 2004, "Linear Models and
Empirical Bayes Methods", Statistical Applications in Genetics and Molecular Biology 3, sections 3 and 6.2): the true
variances over seeds are samples of a scaled inverse χ², whose degrees of freedom d0 are found from the spread of the
logarithms of those that were measured, and each is drawn towards the common one by d0. The distribution of the largest
|t| is drawn with true variances that differ as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from clockhands.comparison.statistics.paired import (
    ALPHA,
    PairedDifference,
    estimate_difference,
    estimate_gap,
    widen,
)
from clockhands.comparison.statistics.variance import POWER, Matrix, VarianceParts
from clockhands.shapes import Float

SURE = 3.0
"""Standard errors by which a drawn quantile is taken higher, so that draws hardly ever make an interval too narrow."""
FEWEST_VARIANCES = 5
"""Fewer variances tell nothing of their spread; each stands alone."""


def compare_with_baseline(
    ours: Sequence[Matrix],
    theirs: Sequence[Matrix],
    alpha: float = ALPHA,
    *,
    groups: Sequence[int] | None = None,
    block: int = 1,
    top: float | None = None,
) -> list[PairedDifference]:
    """Return the difference of each variant from the baseline, with simultaneous 1 - α intervals.

    ``theirs``: the baseline's scores of the seeds and items that pair with each variant. ``block``: so many
    neighbouring items count as one. ``top``: scores are between 0 and this. Raises as ``estimate_difference``.
    """
    if len(ours) == 1:
        return [estimate_difference(ours[0], theirs[0], 1, alpha, groups=groups, block=block, top=top)]
    pairs = list(zip(ours, theirs, strict=True))
    estimates = [estimate_gap(*pair, groups, block) for pair in pairs]
    judged = _judge(tuple(value for value, _ in estimates), tuple(parts for _, parts in estimates), alpha)
    return [
        widen(replace(gap, block=block), *pair, groups, top, alpha) for gap, pair in zip(judged, pairs, strict=True)
    ]


# A page tells the verdicts of a comparison in its table, its sentences and its figure; each asks for them anew.
@lru_cache(maxsize=256)
def _judge(values: tuple[float, ...], parts: tuple[VarianceParts, ...], alpha: float) -> tuple[PairedDifference, ...]:
    """Return simultaneous intervals from means and variances; those that do not vary are left to exact bounds."""
    null = draw_null(min(part.seeds for part in parts), len(parts), min(part.groups for part in parts))
    seed_M, seeds_M = np.array([part.seed for part in parts]), np.array([part.seeds for part in parts])
    varying_M, single_M, freedom_M = seed_M > 0, seed_M * seeds_M, seeds_M - 1
    prior = choose_prior(single_M[varying_M], null, freedom_M[varying_M])
    common = 1.0
    if prior and varying_M.any():
        common = float(find_common(single_M[varying_M], prior, freedom_M[varying_M])[0])
    # Variances of single seeds are drawn to the common one, since variants may have different numbers of seeds.
    seed_M[varying_M] = (moderate(single_M, common, prior, freedom_M) / seeds_M)[varying_M]
    # A small variance over seeds must not leave less than the groups of items alone have.
    error_M = np.sqrt([max(seed + part.excess, part.item) for seed, part in zip(seed_M, parts, strict=True)])
    share_M = np.divide(seed_M, error_M**2, out=np.ones(len(parts)), where=error_M > 0).clip(0.0, 1.0)
    # Drawn t: seeds make this share of the variance, and their true variances differ as the prior says.
    true_BM, freedom = draw_true_variances(*null.means_BM.shape, prior) if prior else 1.0, null.seeds - 1
    variances_BM = null.variances_BM * true_BM
    variances_BM = moderate(variances_BM, find_common(variances_BM, prior, freedom) if prior else 1.0, prior, freedom)
    numerator_BM = np.sqrt(share_M) * null.means_BM * np.sqrt(true_BM) + np.sqrt(1 - share_M) * null.items_BM
    t_BM = np.abs(numerator_BM) / np.sqrt(share_M * variances_BM + (1 - share_M) * null.item_variances_BM)
    largest_B = t_BM.max(axis=1)
    reach, inner = (bound_quantile(largest_B, 1 - level) for level in (alpha, 2 * alpha))
    smallest_M = _find_detectable(null, seed_M * seeds_M, share_M, common, prior, reach)
    differences = []
    for k, (value, part) in enumerate(zip(values, parts, strict=True)):
        error = float(error_M[k])
        t = abs(value) / error if error else math.inf if value else 0.0
        differences.append(
            PairedDifference(
                value=value,
                low=value - reach * error,
                high=value + reach * error,
                error=error,
                p=_estimate_p(t_BM[:, k], t),
                adjusted=_agree(_estimate_p(largest_B, t), t > reach, alpha),
                inner=(value - inner * error, value + inner * error),
                detectable=float(smallest_M[k]) * error,
                seeds=part.seeds,
                items=part.groups,
                comparisons=len(parts),
            )
        )
    return tuple(differences)


def bound_quantile(drawn_B: np.ndarray, level: float) -> float:
    """Return a quantile of draws, ``SURE`` standard errors of its rank higher than the one that was drawn.

    >>> bound_quantile(np.arange(50_000) / 50_000, 0.95) > 0.9525
    True
    """
    return float(np.quantile(drawn_B, min(level + SURE * math.sqrt(level * (1 - level) / len(drawn_B)), 1.0)))


def find_common(variances_XM: np.ndarray, prior: float, freedom: int | np.ndarray) -> np.ndarray:
    """Return the variance that is common to the last axis, which stays with length 1, from the mean of the logarithms.

    ``freedom``: degrees of freedom of each variance. ``prior``: those by which the true variances differ (Smyth 2004,
    section 6.2).
    """
    half = np.asarray(freedom) / 2
    # E ln s² = ln σ² + ψ(f/2) - ln(f/2): what is left is ln σ² and noise.
    logs_XM = np.log(variances_XM) - special.digamma(half) + np.log(half)
    return np.exp(logs_XM.mean(axis=-1, keepdims=True) + special.digamma(prior / 2) - math.log(prior / 2))


def moderate(
    variances_XM: np.ndarray, common_X1: np.ndarray | float, prior: float, freedom: int | np.ndarray
) -> np.ndarray:
    """Return variances drawn to the common one by ``prior`` degrees of freedom; 0 leaves them as they are."""
    return (prior * common_X1 + freedom * variances_XM) / (prior + freedom)


def _find_detectable(
    null: _Null, seed_M: np.ndarray, share_M: np.ndarray, common: float, prior: float, reach: float
) -> Float[np.ndarray, " M"]:
    """Return the differences found with ``POWER`` in other studies like this one, in standard errors of each variant.

    The true variance of a variant differs from ``seed_M``, the one that was found for it, as much as the prior and its
    own seeds leave open (a scaled inverse χ²; Smyth 2004, section 3); another study draws what it measures to the
    common one as this study did. Without a prior the true variance is taken to be the one that was found.
    """
    freedom = null.seeds - 1
    true_BM = draw_true_variances(*null.means_BM.shape, prior + freedom) if prior else 1.0
    relative_M = np.divide(common, seed_M, out=np.ones(len(seed_M)), where=seed_M > 0)
    variances_BM = moderate(null.variances_BM * true_BM, relative_M, prior, freedom)
    # Seeds have this share of the variance of the mean, groups of items the rest.
    scale_BM = np.sqrt(share_M * variances_BM + (1 - share_M) * null.item_variances_BM)
    numerator_BM = np.sqrt(share_M) * null.means_BM * np.sqrt(true_BM) + np.sqrt(1 - share_M) * null.items_BM
    return np.quantile(reach * scale_BM - numerator_BM, POWER, axis=0)


def _estimate_p(drawn_B: np.ndarray, t: float) -> float:
    """Return p from draws: (1 + exceeding) / (1 + draws), which is never 0 (Phipson & Smyth 2010)."""
    return (1 + int((drawn_B >= t).sum())) / (1 + len(drawn_B))


PRIORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)


def choose_prior(variances: Sequence[float] | np.ndarray, null: _Null, freedom: np.ndarray | None = None) -> float:
    """Return the degrees of freedom that the variants' variances over seeds lend to each; 0: each stands alone.

    The logarithms of variances that are equal in truth spread as ``null`` says, and more where ``freedom`` is less than
    that of ``null``, its default. What they spread more, and one standard error of that beside, is the trigamma
    function of half the prior's degrees of freedom (Smyth 2004, section 6.2), which are taken as the next lower of
    ``PRIORS``.
    """
    kept = np.asarray(variances) > 0
    if kept.sum() < FEWEST_VARIANCES:
        return 0.0
    half = (np.full(len(kept), null.seeds - 1) if freedom is None else freedom)[kept] / 2
    logs = np.log(np.asarray(variances)[kept]) - special.digamma(half) + np.log(half)
    wider = float(special.polygamma(1, half).mean() / special.polygamma(1, (null.seeds - 1) / 2))
    # The variance of ln σ² under the prior is ψ′(d0/2): d0 is small where it is large.
    more = max(float(logs.var(ddof=1)) - wider * null.spread, 0.0) + wider * null.spread_error
    return max((prior for prior in PRIORS if special.polygamma(1, prior / 2) >= more), default=0.0)


def _agree(p: float, significant: bool, alpha: float) -> float:
    """Return the drawn p, on the side of α on which the interval is: a quantile may lie between two draws."""
    return min(p, math.nextafter(alpha, 0.0)) if significant else max(p, alpha)


DRAWS = 50_000
"""Draws of what chance alone gives. Of so many the share beyond a quantile of 95 % is known within 0.3 points."""
MOST_DRAWN = 3_000_000
"""Numbers that are drawn at once at most, for memory; of more than sixty variants there are fewer draws."""


@dataclass(frozen=True)
class _Null:
    """What chance alone gives: means of M differences over seeds and over items, with their variances (of mean 1).

    ``spread`` and ``spread_error``: mean and standard deviation of the variance over M of the variances' logarithms.
    """

    means_BM: Float[np.ndarray, "B M"]
    variances_BM: Float[np.ndarray, "B M"]
    items_BM: Float[np.ndarray, "B M"]
    item_variances_BM: Float[np.ndarray, "B M"]
    spread: float
    spread_error: float
    seeds: int


@lru_cache(maxsize=4)
def draw_null(seeds: int, variants: int, groups: int) -> _Null:
    """Draw differences of ``variants`` equal variants from one baseline, in units of their standard errors."""
    draws = min(DRAWS, MOST_DRAWN // variants)
    rng = np.random.default_rng(1_955)
    total, squares = np.zeros((draws, variants)), np.zeros((draws, variants))
    for _ in range(seeds):
        scores_BM = rng.standard_normal((draws, variants + 1))
        # All share the baseline: any two differences are correlated by one half.
        gap_BM = (scores_BM[:, 1:] - scores_BM[:, :1]) / np.sqrt(2)
        total += gap_BM
        squares += gap_BM**2
    variances_BM = (squares - total**2 / seeds) / (seeds - 1)
    scores_BM = rng.standard_normal((draws, variants + 1))
    items_BM = (scores_BM[:, 1:] - scores_BM[:, :1]) / np.sqrt(2)
    free = max(groups - 1, 1)
    item_variances_BM = rng.chisquare(free, (draws, variants)) / free
    spreads_B = np.log(variances_BM).var(axis=1, ddof=1) if variants > 1 else np.zeros(draws)
    means_BM = total / np.sqrt(seeds)
    spread, spread_error = float(spreads_B.mean()), float(spreads_B.std())
    return _Null(means_BM, variances_BM, items_BM, item_variances_BM, spread, spread_error, seeds)


@lru_cache(maxsize=4)
def draw_true_variances(draws: int, variants: int, prior: float) -> np.ndarray:
    """Draw true variances as they differ under a scaled inverse χ² of so many degrees of freedom."""
    return prior / np.random.default_rng(2_004).chisquare(prior, (draws, variants))
