"""From results to judgements: one row a variant, with its score, its difference from the baseline and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clockhands.comparison.folder import Results
from clockhands.comparison.statistics import (
    MIN_SEEDS,
    Difference,
    Matrix,
    difference,
    interquartile_mean,
    mean_interval,
    probability_of_improvement,
)
from clockhands.comparison.trial import items_of
from clockhands.comparison.verdict import verdict
from clockhands.findings import digits_apart


@dataclass(frozen=True)
class Judged:
    """What is known of one variant. ``difference`` is None for the baseline and where fewer than two seeds pair.

    ``probability``: that a seed of it beats a seed of the baseline.
    """

    name: str
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
    verdict: str


def scored(one: Judged, digits: int) -> str:
    """Its score with the interval, or that there is none."""
    if one.score is None:
        return "no seed finished"
    digits = digits_apart(*one.interval, digits) if one.interval else digits
    interval = f" [{one.interval[0]:.{digits}f}, {one.interval[1]:.{digits}f}]" if one.interval else ""
    return f"{one.score:.{digits}f}{interval}"


def judge(results: Results) -> list[Judged]:
    """All variants of a plan, the baseline first."""
    plan = results.plan
    names = [plan.baseline, *(variant.name for variant in plan.variants if variant.name != plan.baseline)]
    compared = max(1, len(names) - 1)
    found = {name: _difference(results, name, compared) for name in names[1:]}
    return [_judged(results, name, found.get(name)) for name in names]


def matrix(results: Results, name: str, seeds: list[int] | None = None) -> Matrix:
    """The metric of a variant, seeds × test items."""
    rows = [items_of(one) for one in results.of(name) if seeds is None or one["seed"] in seeds]
    return np.stack(rows) if rows else np.zeros((0, 0))


def paired_seeds(results: Results, name: str) -> list[int]:
    """The seeds that both a variant and the baseline finished."""
    ours, theirs = ({one["seed"] for one in results.of(each)} for each in (name, results.plan.baseline))
    return sorted(ours & theirs)


def _difference(results: Results, name: str, comparisons: int) -> Difference | None:
    seeds = paired_seeds(results, name)
    if len(seeds) < 2:
        return None
    ours, theirs = matrix(results, name, seeds), matrix(results, results.plan.baseline, seeds)
    found = difference(ours, theirs, comparisons)
    return found if results.plan.metric == "loss" else found.within(100.0)


def _judged(results: Results, name: str, gap: Difference | None) -> Judged:
    plan, finished = results.plan, results.of(name)
    scores_SN = matrix(results, name)
    scores_S = scores_SN.mean(axis=1) if len(scores_SN) else np.zeros(0)
    base_SN = matrix(results, plan.baseline)
    probability = None
    if name != plan.baseline and len(scores_S) and len(base_SN):
        sign = 1 if plan.higher_is_better else -1
        probability = probability_of_improvement(sign * scores_S, sign * base_SN.mean(axis=1))
    lost = {status: len(results.of(name, status)) for status in ("diverged", "failed")}
    return Judged(
        name=name,
        planned=len(plan.seeds),
        finished=len(finished),
        **lost,
        reached=sum(one.get("reached") is not None for one in finished),
        score=float(scores_S.mean()) if len(scores_S) else None,
        interval=_interval(results, scores_SN),
        interquartile=interquartile_mean(scores_S) if len(scores_S) else None,
        difference=gap,
        probability=probability,
        verdict=_sentence(results, name, gap, lost),
    )


def _interval(results: Results, scores_SN: Matrix) -> tuple[float, float] | None:
    """Of the mean; a share of 100 stays between 0 and 100."""
    if len(scores_SN) < MIN_SEEDS:
        return None
    low, high = mean_interval(scores_SN)
    return (low, high) if results.plan.metric == "loss" else (max(low, 0.0), min(high, 100.0))


def _sentence(results: Results, name: str, gap: Difference | None, lost: dict[str, int]) -> str:
    plan = results.plan
    missing = [f"{count} of {len(plan.seeds)} {status}" for status, count in lost.items() if count]
    beside = f"; {' and '.join(missing)}" if missing else ""
    if name == plan.baseline:
        return f"the baseline{beside}"
    seeds = 0 if gap is None else gap.seeds
    if not seeds:
        seeds = len(paired_seeds(results, name))
    most = None if plan.metric == "loss" else 100.0
    return verdict(gap, seeds, higher_is_better=plan.higher_is_better, digits=plan.digits, most=most) + beside
