"""How soon the seeds of a variant reach the plan's target, and whether later than the baseline's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from clockhands.comparison import Comparison
from clockhands.comparison.statistics import ALPHA


def list_paces(comparison: Comparison, variant: str) -> list[float]:
    """Return of each finished seed the step at which it reached the plan's target loss; infinity where it did not."""
    trials = comparison.get_trials(variant)
    return [math.inf if trial.reached is None else float(trial.reached.step) for trial in trials]


def describe_pace(comparison: Comparison, variant: str) -> str:
    """Return after how many steps the seeds reached the target, as text: "200 to 240 steps"."""
    paces = list_paces(comparison, variant)
    hits = [pace for pace in paces if math.isfinite(pace)]
    if not hits:
        return f"more than {comparison.plan.budget[1]:g} steps"
    low, high = min(hits), max(hits)
    steps = f"{low:g} steps" if low == high else f"{low:g} to {high:g} steps"
    return steps if len(hits) == len(paces) else f"{steps} in {len(hits)} of {len(paces)} seeds"


def describe_slower(comparison: Comparison, variant: str) -> str:
    """Return how many seeds took longer than every seed of the baseline, with the p of an exact test."""
    ours, theirs = list_paces(comparison, variant), list_paces(comparison, comparison.plan.baseline)
    later = sum(pace > max(theirs) for pace in ours)
    p = compare_paces(ours, theirs)
    p_text = "< 0.001" if p < 0.001 else f"= {p:.3f}"
    told = "later" if p < ALPHA and np.median(ours) > np.median(theirs) else "undecided"
    return f"{told}: {later} of {len(ours)} seeds took longer than any of the baseline's; exact rank test, p {p_text}"


def compare_paces(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p of the exact two-sided rank test (Wilcoxon 1945; Mann & Whitney 1947) over all divisions of the seeds.

    A seed that never reached the target stands behind all that did. Seeds of two variants share data and order; that
    they are compared as if they did not makes the p larger, not smaller. 1 for no seed.
    """
    if not ours or not theirs:
        return 1.0
    ranks = stats.rankdata([*ours, *theirs])

    def distance(mine: np.ndarray, other: np.ndarray) -> float:
        return abs(float(mine.mean() - other.mean()))

    test = stats.permutation_test(
        (ranks[: len(ours)], ranks[len(ours) :]), distance, alternative="greater", n_resamples=np.inf
    )
    return float(test.pvalue)
