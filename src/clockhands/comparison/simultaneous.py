"""Many variants against one baseline: simultaneous intervals by the largest of their t statistics (max-t).

The differences share a baseline, and with it a part of their chance; the largest of their |t| is therefore smaller than
that of as many independent ones, and its distribution is drawn (Dunnett 1955; Westfall & Young 1993, single step, so
that interval and verdict agree): seeds paired as in the comparison, as many seeds, variants and degrees of freedom.
Permuting the seeds themselves cannot do this: five have 32 changes of sign.

With five seeds a variance has four degrees of freedom, and the largest of 42 |t| is above 8 once in twenty times by
variances that came out small by accident. Variants tell of each other's variance (Smyth 2004, "Linear Models and
Empirical Bayes Methods", section 3): the variance over seeds of each is drawn towards the mean of all, as far as the
spread of their logarithms allows, judged one standard error against it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from clockhands.comparison.statistics import (
    ALPHA,
    POWER,
    Difference,
    Matrix,
    Parts,
    difference,
    estimate_parts,
    pair_items,
    widen_at_ceiling,
)
from clockhands.shapes import Float

DRAWS = 4000
FEWEST = 5
"""Fewer variances tell nothing of their spread; each stands alone."""


@dataclass(frozen=True)
class Null:
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


@lru_cache(maxsize=8)
def draw_null(seeds: int, variants: int, groups: int, draws: int = DRAWS) -> Null:
    """Draw differences of ``variants`` equal variants from one baseline, in units of their standard errors."""
    rng = np.random.default_rng(1_955)
    total, squares = np.zeros((draws, variants)), np.zeros((draws, variants))
    for _ in range(seeds):
        scores_BM = rng.standard_normal((draws, variants + 1))
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
    return Null(means_BM, variances_BM, items_BM, item_variances_BM, spread, spread_error, seeds)


def compare_with_baseline(
    ours: Sequence[Matrix],
    theirs: Sequence[Matrix],
    alpha: float = ALPHA,
    *,
    groups: Sequence[int] | None = None,
    top: float | None = None,
) -> list[Difference]:
    """Return the difference of each variant from the baseline, with simultaneous 1 - α intervals.

    ``theirs``: the baseline's scores of the seeds and items that pair with each variant. ``top``: scores are between 0
    and this. Raises as ``difference``.
    """
    if len(ours) == 1:
        return [difference(ours[0], theirs[0], 1, alpha, groups=groups, top=top)]
    gaps = [pair_items(matrix, base, groups) for matrix, base in zip(ours, theirs, strict=True)]
    estimates = [estimate_parts(*gap) for gap in gaps]
    judged = _judge([value for value, _ in estimates], [parts for _, parts in estimates], alpha)
    if top is None:
        return judged
    return [widen_at_ceiling(gap, *pair, top, alpha) for gap, pair in zip(judged, gaps, strict=True)]


def _judge(values: Sequence[float], parts: Sequence[Parts], alpha: float) -> list[Difference]:
    """Simultaneous intervals from means and variances; those that do not vary at all are left to exact bounds."""
    null = draw_null(min(part.seeds for part in parts), len(parts), min(part.groups for part in parts))
    weight = choose_weight([part.seed for part in parts], null)
    seed_M, error_M = _moderate(parts, weight)
    share_M = np.divide(seed_M, error_M**2, out=np.ones(len(parts)), where=error_M > 0).clip(0.0, 1.0)
    numerator_BM, scale_BM = _draw_statistics(null, share_M, weight)
    t_BM = np.abs(numerator_BM) / scale_BM
    largest_B = t_BM.max(axis=1)
    reach, inner = (float(np.quantile(largest_B, 1 - level)) for level in (alpha, 2 * alpha))
    differences = []
    for k, (value, part) in enumerate(zip(values, parts, strict=True)):
        error = float(error_M[k])
        t = abs(value) / error if error else math.inf if value else 0.0
        smallest = float(np.quantile(reach * scale_BM[:, k] - numerator_BM[:, k], POWER)) * error
        differences.append(
            Difference(
                value=value,
                low=value - reach * error,
                high=value + reach * error,
                error=error,
                p=_drawn_p(t_BM[:, k], t),
                adjusted=_agree(_drawn_p(largest_B, t), t > reach, alpha),
                inner=(value - inner * error, value + inner * error),
                detectable=smallest,
                seeds=part.seeds,
                items=part.groups,
                comparisons=len(parts),
            )
        )
    return differences


def _moderate(parts: Sequence[Parts], weight: float) -> tuple[np.ndarray, np.ndarray]:
    """The variances over seeds, drawn to their mean, and the standard errors that they make with the items'."""
    varying = [part.seed for part in parts if part.total]
    common = float(np.mean(varying)) if varying else 0.0
    seed_M = np.array([(1 - weight) * part.seed + weight * common if part.total else 0.0 for part in parts])
    # A small variance over seeds must not leave less than the groups of items alone have.
    total_M = [max(seed + part.excess, part.item) for seed, part in zip(seed_M, parts, strict=True)]
    return seed_M, np.sqrt(total_M)


def _drawn_p(drawn_B: np.ndarray, t: float) -> float:
    """A p that is drawn is never 0: (1 + exceeding) / (1 + draws) (Phipson & Smyth 2010)."""
    return (1 + int((drawn_B >= t).sum())) / (1 + len(drawn_B))


def choose_weight(variances: Sequence[float], null: Null) -> float:
    """Return how far each variance over seeds is drawn to the mean of all: 0 (stands alone) to below 1.

    The logarithms of variances that are equal in truth spread as ``null`` says; what they spread more, and one standard
    error of that beside, is the trigamma function of half the prior's degrees of freedom (Smyth 2004, section 6.2).
    """
    logs = np.log([variance for variance in variances if variance > 0])
    if len(logs) < FEWEST:
        return 0.0
    more = max(float(logs.var(ddof=1)) - null.spread, 0.0) + null.spread_error
    freedom = 2 * float(optimize.brentq(lambda half: special.polygamma(1, half) - more, 1e-3, 1e6))
    return freedom / (freedom + null.seeds - 1)


def _draw_statistics(null: Null, share_M: np.ndarray, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """Numerators and denominators of the drawn t: seeds make ``share_M`` of the variance, groups of items the rest."""
    moderated_BM = (1 - weight) * null.variances_BM + weight * null.variances_BM.mean(axis=1, keepdims=True)
    numerator_BM = np.sqrt(share_M) * null.means_BM + np.sqrt(1 - share_M) * null.items_BM
    return numerator_BM, np.sqrt(share_M * moderated_BM + (1 - share_M) * null.item_variances_BM)


def _agree(p: float, significant: bool, alpha: float) -> float:
    """The drawn p, on the side of α on which the interval is: a quantile between two draws may put them apart."""
    return min(p, math.nextafter(alpha, 0.0)) if significant else max(p, alpha)
