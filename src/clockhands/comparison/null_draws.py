"""What chance alone gives: draws of the differences of equal variants from one baseline, and of their variances."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clockhands.shapes import Float

__all__ = ["Null", "draw_null", "draw_true_variances"]

DRAWS = 50_000
"""Draws of what chance alone gives. Of so many the share beyond a quantile of 95 % is known within 0.3 points."""
MOST_DRAWN = 3_000_000
"""Numbers that are drawn at once at most, for memory; of more than sixty variants there are fewer draws."""


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


@lru_cache(maxsize=4)
def draw_null(seeds: int, variants: int, groups: int) -> Null:
    """Draw differences of ``variants`` equal variants from one baseline, in units of their standard errors."""
    draws = min(DRAWS, MOST_DRAWN // variants)
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


@lru_cache(maxsize=4)
def draw_true_variances(draws: int, variants: int, prior: float) -> np.ndarray:
    """Draw true variances as they differ under a scaled inverse χ² of so many degrees of freedom."""
    return prior / np.random.default_rng(2_004).chisquare(prior, (draws, variants))
