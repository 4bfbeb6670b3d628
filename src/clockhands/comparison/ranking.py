"""Variants of which too few seeds learned, judged by the ranks of all their seeds.

Where some seeds fail, no interval of a mean holds; the rank test needs none, and holds whatever scores are drawn from.
It can only tell which of two has the higher scores, not by how much. Up to thirty seeds a side it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clockhands.comparison.exact import LEARNING_ALPHA, compare_ranks, is_ranked_exactly
from clockhands.comparison.learning import Learning
from clockhands.comparison.plan import Plan
from clockhands.comparison.statistics import MIN_SEEDS
from clockhands.comparison.verdict_sentences import Kind


def rank_torn(
    means: Mapping[str, Sequence[float]], learning: Mapping[str, Learning], plan: Plan
) -> dict[str, tuple[Kind, str]]:
    """Return kind and sentence for each variant of which too few seeds learned and whose ranks show a difference.

    ``means``: the score of every seed that ended, by variant. The tests share their error (Bonferroni).
    """
    base = plan.baseline
    torn = [
        name for name in learning if name != base and _is_torn(means[name], means[base], learning[name], learning[base])
    ]
    ps = {name: min(1.0, len(torn) * compare_ranks(means[name], means[base])) for name in torn}
    return {
        name: _describe_ranks(means[name], means[base], plan, p, describe_counts(learning[name], learning[base]))
        for name, p in ps.items()
        if p < LEARNING_ALPHA
    }


def _is_torn(ours: Sequence[float], theirs: Sequence[float], learned: Learning, base: Learning) -> bool:
    """Tell whether some seeds learned and some did not, so that too few learned in both for an interval."""
    few = len({*learned.scored} & {*base.scored}) < MIN_SEEDS
    return (learned.mixed or base.mixed) and few and min(len(ours), len(theirs)) >= MIN_SEEDS


def _describe_ranks(
    ours: Sequence[float], theirs: Sequence[float], plan: Plan, p: float, counts: str
) -> tuple[Kind, str]:
    """Say whose seeds score higher, with the range of both; ``p`` is that of their ranks."""
    above = float(np.median(ours)) > float(np.median(theirs))
    kind: Kind = "better" if above == plan.higher_is_better else "worse"
    mine, other = (f"{min(values):.{plan.digits}f} to {max(values):.{plan.digits}f}" for values in (ours, theirs))
    test = "exact rank test" if is_ranked_exactly(len(ours), len(theirs)) else "rank test over random divisions"
    return kind, f"{kind}: its seeds score {mine}, and the baseline's {other} ({test}, p {format_p(p)}); {counts}"


def describe_counts(ours: Learning, base: Learning) -> str:
    """Return how many seeds learned, of the variant and of the baseline; the intervals stand in a column beside."""
    (right, total), (base_right, base_total) = ours.counts, base.counts
    return f"{right} of {total} seeds learned, and {base_right} of the baseline's {base_total}"


def format_p(p: float) -> str:
    """Return what stands behind "p": "= 0.008", or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
