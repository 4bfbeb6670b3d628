"""From trials to verdicts: a row for each variant, with its score, its difference from the baseline, and a sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clockhands.comparison.exact import LEARNING_ALPHA, compare_counts
from clockhands.comparison.learning import Learning, classify_seeds, find_threshold
from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.comparison.statistics import (
    MIN_SEEDS,
    Difference,
    Matrix,
    difference,
    interquartile_mean,
    mean_interval,
    name_cells,
    probability_of_improvement,
)
from clockhands.errors import DataError
from clockhands.findings import choose_digits

Kind = Literal["baseline", "better", "worse", "equivalent", "undecided", "too few seeds"]
"""What a verdict says. "equivalent": shown to differ by less than the plan's margin; "undecided": neither that nor a
difference is shown."""
FEWEST = 3
"""Seeds from which on a score has an interval."""


@dataclass(frozen=True)
class Verdict:
    """What is known of one variant. ``difference`` is None for the baseline and where fewer than two seeds pair.

    ``learning``: which seeds learned; where only some did, ``score``, ``interval`` and ``difference`` are of those.
    ``learning_p``: of the exact test that as many seeds learn as of the baseline, for all variants together.
    ``probability``: that a seed of it beats a seed of the baseline. ``reached``: seeds that reached the plan's target.
    """

    variant: str
    planned: int
    finished: int
    diverged: int
    failed: int
    reached: int
    learning: Learning
    learning_p: float | None
    score: float | None
    interval: tuple[float, float] | None
    interquartile: float | None
    difference: Difference | None
    probability: float | None
    kind: Kind
    sentence: str


def judge(comparison: Comparison) -> list[Verdict]:
    """Return the verdicts on all variants of a plan, the baseline first.

    Raises DataError for a trial with test items that have no number, UsageError for one with other test items.
    """
    plan = comparison.plan
    names = [plan.baseline, *(variant.name for variant in plan.variants if variant.name != plan.baseline)]
    threshold = find_threshold(comparison)
    learning = {name: classify_seeds(comparison, name, threshold) for name in names}
    gaps = find_differences(comparison, learning)
    counts = compare_counts([learning[name].counts for name in names[1:]], learning[plan.baseline].counts)
    ps = dict(zip(names[1:], counts, strict=True))
    return [_judge_variant(comparison, name, learning, gaps.get(name), ps.get(name)) for name in names]


def score_matrix(comparison: Comparison, variant: str, seeds: Collection[int] | None = None) -> Matrix:
    """Return the metric of a variant's finished trials, seeds × test items.

    Raises DataError for a trial with items that have no number.
    """
    trials = [trial for trial in comparison.trials_of(variant) if seeds is None or trial.seed in seeds]
    if not trials:
        return np.zeros((0, 0))
    scores_SN = np.stack([trial.items_N for trial in trials])
    if not np.isfinite(scores_SN).all():
        trial = next(trial for trial in trials if not np.isfinite(trial.items_N).all())
        where = name_cells(trial.items_N[None]).removesuffix(" of row 0")
        raise DataError(f"the trial of {variant!r} with seed {trial.seed} has no score for {where} (from 0)")
    return scores_SN


def find_groups(comparison: Comparison) -> tuple[int, ...] | None:
    """Return the groups of the test items, which all trials share; None where no items hang together."""
    return next((trial.groups for trial in comparison.trials if trial.groups is not None), None)


def find_differences(comparison: Comparison, learning: Mapping[str, Learning]) -> dict[str, Difference]:
    """Return the difference of each variant from the baseline, over the seeds of both that stand for them.

    Those with seeds enough for a verdict are compared together (max-t), the others each alone (Bonferroni).
    """
    base, shared = comparison.plan.baseline, max(1, len(learning) - 1)
    top = find_top(comparison.plan)
    seeds = {name: sorted({*learning[name].scored} & {*learning[base].scored}) for name in learning if name != base}
    paired = [name for name in seeds if len(seeds[name]) >= 2]
    ours = {name: score_matrix(comparison, name, seeds[name]) for name in paired}
    theirs = {name: score_matrix(comparison, base, seeds[name]) for name in paired}
    groups, enough = find_groups(comparison), [name for name in paired if len(seeds[name]) >= MIN_SEEDS]
    together = [ours[name] for name in enough], [theirs[name] for name in enough]
    judged = compare_with_baseline(*together, groups=groups, top=top) if enough else []
    gaps = dict(zip(enough, judged, strict=True))
    for name in paired:
        if name not in gaps:
            gaps[name] = difference(ours[name], theirs[name], shared, groups=groups, top=top)
    return gaps if top is None else {name: gap.within(top) for name, gap in gaps.items()}


def find_top(plan: Plan) -> float | None:
    """Return the best score that the plan's metric can give; None for a loss."""
    return None if plan.metric == "loss" else 100.0


def format_score(verdict: Verdict, digits: int) -> str:
    """Return the score with its interval as text, or that there is none."""
    if verdict.score is None:
        return "no seed finished"
    if verdict.interval is None:
        return f"{verdict.score:.{digits}f}"
    digits = choose_digits(*verdict.interval, digits)
    return f"{verdict.score:.{digits}f} [{verdict.interval[0]:.{digits}f}, {verdict.interval[1]:.{digits}f}]"


def describe_difference(
    gap: Difference | None,
    seeds: int,
    *,
    higher_is_better: bool,
    margin: float,
    digits: int = 1,
    unit: str = "points",
    detecting: bool = True,
) -> tuple[Kind, str]:
    """Return what a difference from the baseline means, as a kind and as one sentence with its numbers.

    ``seeds``: how many pair with the baseline. ``margin``: smaller differences count as equal, as set before measuring.
    ``unit``: of the metric. ``detecting``: say which difference could have been detected, where none was.

    >>> describe_difference(None, 4, higher_is_better=True, margin=1.0)
    ('too few seeds', 'too few seeds to tell (4 of at least 5)')
    """
    if gap is None or seeds < MIN_SEEDS:
        return "too few seeds", f"too few seeds to tell ({seeds} of at least {MIN_SEEDS})"
    if gap.significant:
        return _describe_significant(gap, higher_is_better, margin, digits, unit)
    if gap.is_within(margin):
        low, high = _format_range(*gap.inner, digits)
        return "equivalent", f"equivalent: the difference is from {low} to {high} {unit}, within ±{margin:g}"
    low, high = _format_range(gap.low, gap.high, digits)
    same = "the same on every test item of every seed; over further items " if gap.error == 0 and not gap.value else ""
    text = f"undecided: {same}the difference is from {low} to {high} {unit}"
    if detecting and gap.detectable:
        text += f" ({format_number(gap.detectable, digits)} could have been detected)"
    return "undecided", text


def _describe_significant(
    gap: Difference, higher_is_better: bool, margin: float, digits: int, unit: str
) -> tuple[Kind, str]:
    kind: Kind = "better" if (gap.value > 0) == higher_is_better else "worse"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    digits = choose_digits(low, high, digits, format_number)
    size, low_text, high_text = (format_number(value, digits) for value in (abs(gap.value), low, high))
    small = f", less than the margin of {margin:g} {unit}" if high < margin else ""
    return kind, f"{kind} by {size} [{low_text}, {high_text}]{small}"


def _format_range(low: float, high: float, digits: int) -> tuple[str, str]:
    """Both ends with their signs, and digits enough to tell them apart; -0.0 is 0.0."""
    digits = choose_digits(low, high, digits)
    low_text, high_text = (f"{round(value, digits) + 0.0:+.{digits}f}" for value in (low, high))
    return low_text.replace("-", "−"), high_text.replace("-", "−")


def format_number(value: float, digits: int = 1) -> str:
    """Return a number with ``digits`` decimals, and with more where those would all be 0."""
    while digits < 6 and value and round(abs(value), digits) < 10**-digits:
        digits += 1
    return f"{value:.{digits}f}"


def _judge_variant(
    comparison: Comparison,
    variant: str,
    learning: Mapping[str, Learning],
    gap: Difference | None,
    learning_p: float | None,
) -> Verdict:
    plan, finished, ours = comparison.plan, comparison.trials_of(variant), learning[variant]
    scores_SN = score_matrix(comparison, variant, ours.scored)
    scores_S = scores_SN.mean(axis=1) if len(scores_SN) else np.zeros(0)
    score = float(scores_S.mean()) if len(scores_S) else None
    kind, sentence = _describe(comparison, variant, learning, gap, learning_p)
    return Verdict(
        variant=variant,
        planned=len(plan.seeds),
        finished=len(finished),
        diverged=len(ours.diverged),
        failed=len(comparison.trials_of(variant, "failed")),
        reached=sum(trial.reached is not None for trial in finished),
        learning=ours,
        learning_p=learning_p,
        score=score,
        interval=_format_interval(comparison, scores_SN),
        interquartile=interquartile_mean(scores_S) if len(scores_S) else None,
        difference=gap,
        probability=_compute_probability(comparison, variant),
        kind=kind,
        sentence=sentence,
    )


def _compute_probability(comparison: Comparison, variant: str) -> float | None:
    """Return the probability of improvement over all seeds that ended, whether they learned or not."""
    plan = comparison.plan
    ours_SN, base_SN = (score_matrix(comparison, name) for name in (variant, plan.baseline))
    if variant == plan.baseline or not len(ours_SN) or not len(base_SN):
        return None
    sign = 1 if plan.higher_is_better else -1
    return probability_of_improvement(sign * ours_SN.mean(axis=1), sign * base_SN.mean(axis=1))


def _format_interval(comparison: Comparison, scores_SN: Matrix) -> tuple[float, float] | None:
    if len(scores_SN) < FEWEST:
        return None
    return mean_interval(scores_SN, groups=find_groups(comparison), top=find_top(comparison.plan))


def _describe(
    comparison: Comparison,
    variant: str,
    learning: Mapping[str, Learning],
    gap: Difference | None,
    learning_p: float | None,
) -> tuple[Kind, str]:
    """The kind and the sentence: whether it learns as often, then by how much those that learned differ."""
    plan, ours, base = comparison.plan, learning[variant], learning[comparison.plan.baseline]
    lost = "".join(f"; {text}" for text in _list_lost(comparison, variant, ours))
    if variant == plan.baseline:
        return "baseline", f"the baseline{lost}"
    if not ours.learned and not base.learned and ours.unlearned and base.unlearned:
        scores = " against ".join(_format_mean(comparison, name, plan.digits) for name in (variant, plan.baseline))
        return "undecided", f"undecided: neither learned ({scores}), so nothing is known of their difference{lost}"
    kind, sentence = describe_difference(
        gap,
        gap.seeds if gap is not None else len({*ours.scored} & {*base.scored}),
        higher_is_better=plan.higher_is_better,
        margin=plan.equal_within,
        digits=plan.digits,
        unit=plan.unit,
        detecting=ours.complete and base.complete,
    )
    if learning_p is not None and learning_p < LEARNING_ALPHA:
        kind, sentence = _describe_learning(ours, base, learning_p, kind, sentence)
    elif ours.mixed or base.mixed:
        sentence += f" among the seeds that learned: {ours}; {base} of the baseline"
    return kind, sentence + lost


def _describe_learning(ours: Learning, base: Learning, p: float, kind: Kind, sentence: str) -> tuple[Kind, str]:
    """A share of seeds that learned which differs from the baseline's, before what the scores say."""
    (right, total), (base_right, base_total) = ours.counts, base.counts
    decided: Kind = "better" if right / total > base_right / base_total else "worse"
    p_text = "< 0.001" if p < 0.001 else f"= {p:.3f}"
    learned = f"{right} of {total} seeds learned, {base_right} of {base_total} of the baseline (exact test, p {p_text})"
    if kind in ("too few seeds", "undecided", "equivalent"):
        return decided, f"{decided}: {learned}"
    return decided, f"{sentence}; {learned}" if kind == decided else f"{decided}: {learned}; those {sentence}"


def _format_mean(comparison: Comparison, variant: str, digits: int) -> str:
    unit = "" if comparison.plan.metric == "loss" else " %"
    return f"{score_matrix(comparison, variant).mean():.{digits}f}{unit}"


def _list_lost(comparison: Comparison, variant: str, ours: Learning) -> Sequence[str]:
    """Which seeds are missing from the score, and a budget that differs from the baseline's."""
    plan, costs = comparison.plan, comparison.costs
    planned = len(plan.seeds)
    counts = {
        "diverged": len(ours.diverged),
        "failed": len(comparison.trials_of(variant, "failed")),
    }
    lost = [f"{count} of {planned} {status}" for status, count in counts.items() if count]
    texts = [" and ".join(lost)] if lost else []
    if variant in costs and plan.baseline in costs and costs[variant].steps != costs[plan.baseline].steps:
        texts.append(f"{costs[variant].steps:,} steps against {costs[plan.baseline].steps:,}")
    return texts
