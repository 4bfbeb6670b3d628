"""From trials to verdicts: a row for each variant, with its score, its difference from the baseline, and a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics import (
    MIN_SEEDS,
    Difference,
    Matrix,
    difference,
    interquartile_mean,
    mean_interval,
    probability_of_improvement,
)
from clockhands.comparison.trial import Status
from clockhands.findings import digits_apart

Kind = Literal["baseline", "better", "worse", "no difference", "inconclusive", "too few seeds"]
"""What a verdict says. "no difference": one as large as the sentence names could have been detected, and was not."""


@dataclass(frozen=True)
class Verdict:
    """What is known of one variant. ``difference`` is None for the baseline and where fewer than two seeds pair.

    ``probability``: that a seed of it beats a seed of the baseline. ``reached``: seeds that reached the plan's target.
    """

    variant: str
    planned: int
    finished: int
    diverged: int
    failed: int
    reached: int
    score: float | None
    interval: tuple[float, float] | None
    interquartile: float | None
    difference: Difference | None
    probability: float | None
    kind: Kind
    sentence: str


def judge(comparison: Comparison) -> list[Verdict]:
    """Return the verdicts on all variants of a plan, the baseline first."""
    plan = comparison.plan
    names = [plan.baseline, *(variant.name for variant in plan.variants if variant.name != plan.baseline)]
    compared = max(1, len(names) - 1)
    differences = {name: _paired_difference(comparison, name, compared) for name in names[1:]}
    return [_judge_variant(comparison, name, differences.get(name)) for name in names]


def score_matrix(comparison: Comparison, variant: str, seeds: Collection[int] | None = None) -> Matrix:
    """Return the metric of a variant's finished trials, seeds × test items."""
    trials = comparison.trials_of(variant)
    rows = [trial.items_N for trial in trials if seeds is None or trial.seed in seeds]
    return np.stack(rows) if rows else np.zeros((0, 0))


def format_score(verdict: Verdict, digits: int) -> str:
    """Return the score with its interval as text, or that there is none."""
    if verdict.score is None:
        return "no seed finished"
    if verdict.interval is None:
        return f"{verdict.score:.{digits}f}"
    digits = digits_apart(*verdict.interval, digits)
    return f"{verdict.score:.{digits}f} [{verdict.interval[0]:.{digits}f}, {verdict.interval[1]:.{digits}f}]"


def describe_difference(
    gap: Difference | None,
    seeds: int,
    *,
    higher_is_better: bool,
    digits: int = 1,
    unit: str = "points",
    most: float | None = None,
) -> tuple[Kind, str]:
    """Return what a difference from the baseline means, as a kind and as one sentence with its numbers.

    ``seeds``: how many pair with the baseline. ``unit``: of the metric. ``most``: no two scores are further apart.

    >>> describe_difference(None, 4, higher_is_better=True)
    ('too few seeds', 'too few seeds to tell (4 of at least 5)')
    """
    if gap is None or seeds < MIN_SEEDS:
        return "too few seeds", f"too few seeds to tell ({seeds} of at least {MIN_SEEDS})"
    if not gap.significant and gap.error == 0:
        return "no difference", "no difference: the same on every test item of every seed"
    if not gap.significant and most is not None and gap.detectable > most:
        return "inconclusive", "inconclusive: the seeds vary too much to detect any difference"
    if not gap.significant:
        detectable = format_number(gap.detectable, digits)
        return "no difference", f"no significant difference ({detectable} {unit} could have been detected)"
    kind: Kind = "better" if (gap.value > 0) == higher_is_better else "worse"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    digits = digits_apart(low, high, digits, format_number)
    size, low_text, high_text = (format_number(value, digits) for value in (abs(gap.value), low, high))
    return kind, f"{kind} by {size} [{low_text}, {high_text}]"


def format_number(value: float, digits: int = 1) -> str:
    """Return a number with ``digits`` decimals, and with more where those would all be 0."""
    while digits < 6 and value and round(abs(value), digits) < 10**-digits:
        digits += 1
    return f"{value:.{digits}f}"


def _paired_seeds(comparison: Comparison, variant: str) -> list[int]:
    """The seeds that both a variant and the baseline finished."""
    ours, theirs = (
        {trial.seed for trial in comparison.trials_of(name)} for name in (variant, comparison.plan.baseline)
    )
    return sorted(ours & theirs)


def _paired_difference(comparison: Comparison, variant: str, comparisons: int) -> Difference | None:
    seeds = _paired_seeds(comparison, variant)
    if len(seeds) < 2:
        return None
    ours, theirs = (score_matrix(comparison, name, seeds) for name in (variant, comparison.plan.baseline))
    gap = difference(ours, theirs, comparisons)
    return gap if comparison.plan.metric == "loss" else gap.within(100.0)


def _judge_variant(comparison: Comparison, variant: str, gap: Difference | None) -> Verdict:
    plan, finished = comparison.plan, comparison.trials_of(variant)
    scores_SN = score_matrix(comparison, variant)
    scores_S = scores_SN.mean(axis=1) if len(scores_SN) else np.zeros(0)
    statuses: tuple[Status, ...] = ("diverged", "failed")
    lost = {status: len(comparison.trials_of(variant, status)) for status in statuses}
    kind, sentence = _describe(comparison, variant, gap, lost)
    return Verdict(
        variant=variant,
        planned=len(plan.seeds),
        finished=len(finished),
        **lost,
        reached=sum(trial.reached is not None for trial in finished),
        score=float(scores_S.mean()) if len(scores_S) else None,
        interval=_interval(plan, scores_SN),
        interquartile=interquartile_mean(scores_S) if len(scores_S) else None,
        difference=gap,
        probability=_probability(comparison, variant, scores_S),
        kind=kind,
        sentence=sentence,
    )


def _probability(comparison: Comparison, variant: str, scores_S: np.ndarray) -> float | None:
    plan, base_SN = comparison.plan, score_matrix(comparison, comparison.plan.baseline)
    if variant == plan.baseline or not len(scores_S) or not len(base_SN):
        return None
    sign = 1 if plan.higher_is_better else -1
    return probability_of_improvement(sign * scores_S, sign * base_SN.mean(axis=1))


def _interval(plan: Plan, scores_SN: Matrix) -> tuple[float, float] | None:
    """Of the mean; a share of 100 stays between 0 and 100."""
    if len(scores_SN) < MIN_SEEDS:
        return None
    low, high = mean_interval(scores_SN)
    return (low, high) if plan.metric == "loss" else (max(low, 0.0), min(high, 100.0))


def _describe(
    comparison: Comparison, variant: str, gap: Difference | None, lost: Mapping[Status, int]
) -> tuple[Kind, str]:
    """The kind and the sentence, to which lost trials are added."""
    plan = comparison.plan
    missing = [f"{count} of {len(plan.seeds)} {status}" for status, count in lost.items() if count]
    beside = f"; {' and '.join(missing)}" if missing else ""
    if variant == plan.baseline:
        return "baseline", f"the baseline{beside}"
    kind, sentence = describe_difference(
        gap,
        gap.seeds if gap is not None else len(_paired_seeds(comparison, variant)),
        higher_is_better=plan.higher_is_better,
        digits=plan.digits,
        unit=plan.unit,
        most=None if plan.metric == "loss" else 100.0,
    )
    return kind, sentence + beside
