"""How soon the seeds of a variant reach the plan's target, and whether later than the baseline's."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from clockhands.comparison import Comparison
from clockhands.comparison.statistics.exact import compare_ranks
from clockhands.comparison.statistics.paired import ALPHA
from clockhands.comparison.verdicts import format_p

LATER: Literal["later"] = "later"
NOT_MEASURED = "(not measured)"
"""Stands in an answer for what no trial gave, as before all have run."""


def list_paces(comparison: Comparison, variant: str) -> list[float]:
    """Return of each finished seed the step at which it reached the plan's target loss; infinity where it did not."""
    trials = comparison.get_trials(variant)
    return [math.inf if trial.reached is None else float(trial.reached.step) for trial in trials]


def describe_pace(comparison: Comparison, variant: str) -> str:
    """Return after how many steps the seeds reached the target, as text: "200 to 240 steps"."""
    paces = list_paces(comparison, variant)
    if not paces:
        return NOT_MEASURED
    hits = [pace for pace in paces if math.isfinite(pace)]
    if not hits:
        kind, amount = comparison.plan.budget
        return f"more than {amount:,} {kind}"
    low, high = min(hits), max(hits)
    steps = f"{low:g} steps" if low == high else f"{low:g} to {high:g} steps"
    return steps if len(hits) == len(paces) else f"{steps} in {len(hits)} of {len(paces)} seeds"


def describe_slower(comparison: Comparison, variant: str) -> str:
    """Return how many seeds took longer than every seed of the baseline, with the p of an exact test."""
    ours, theirs = list_paces(comparison, variant), list_paces(comparison, comparison.plan.baseline)
    if not ours or not theirs:
        return NOT_MEASURED
    later = sum(pace > max(theirs) for pace in ours)
    verdict, p = find_pace_verdict(comparison, variant), format_p(compare_ranks(ours, theirs))
    return f"{verdict}: {later} of {len(ours)} seeds took longer than any of the baseline's; exact rank test, p {p}"


def find_pace_verdict(comparison: Comparison, variant: str) -> str:
    """Return "later" where the seeds reach the target later than the baseline's by an exact test, else "undecided"."""
    ours, theirs = list_paces(comparison, variant), list_paces(comparison, comparison.plan.baseline)
    return LATER if compare_ranks(ours, theirs) < ALPHA and np.median(ours) > np.median(theirs) else "undecided"
