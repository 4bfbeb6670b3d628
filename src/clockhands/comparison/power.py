"""What a comparison could have detected: the smallest difference that is found with a given probability."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import optimize, stats

from clockhands.comparison.exact import ALPHA

__all__ = ["POWER", "centre_error", "find_detectable"]

POWER = 0.8
"""With which probability a difference is to be found that is said to have been detectable."""


def centre_error(error: float, freedom: float) -> float:
    """Return a standard error that is as often too large as too small: of four degrees of freedom it is low by 8 %."""
    return error * math.sqrt(freedom / float(stats.chi2.median(freedom)))


def find_detectable(
    error: float, freedom: float | int, comparisons: int = 1, alpha: float = ALPHA, power: float = POWER
) -> float:
    """Return the difference that a t test of this standard error detects with that power (noncentral t; Cohen 1988)."""
    return _find_detectable_t(float(freedom), comparisons, alpha, power) * error if error else 0.0


@lru_cache(maxsize=4096)
def _find_detectable_t(freedom: float, comparisons: int, alpha: float, power: float) -> float:
    """Return that difference in standard errors: a root of a slow function, which the parts of a page ask for again."""
    threshold = stats.t.ppf(1 - alpha / (2 * comparisons), freedom)

    def short(shift: float) -> float:
        return float(stats.nct.sf(threshold, freedom, shift)) - power

    return float(optimize.brentq(short, 0.0, 8 * threshold + 8))
