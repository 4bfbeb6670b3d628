"""The sentence about one difference from the baseline, and numbers as verdicts write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from clockhands.comparison.learning import Learning, classify_seeds, find_groups, find_threshold, find_top, score_matrix
from clockhands.comparison.plan import Plan, format_margin
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics.exact import LEARNING_ALPHA, compare_counts, compare_ranks, is_ranked_exactly
from clockhands.comparison.statistics.paired import (
    MIN_SEEDS,
    PairedDifference,
    bound_mean,
    compute_improvement_probability,
    compute_interquartile_mean,
    estimate_difference,
)
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.comparison.statistics.variance import find_block_length
from clockhands.findings import choose_digits

VerdictKind = Literal["baseline", "better", "worse", "equivalent", "undecided", "too few seeds"]
"""What a verdict says. "equivalent": shown to differ by less than the plan's margin; "undecided": neither that nor a
difference is shown."""


def describe_difference(
    gap: PairedDifference | None,
    seeds: int,
    *,
    higher_is_better: bool,
    margin: float,
    digits: int = 1,
    unit: str = "points",
    detecting: bool = True,
) -> tuple[VerdictKind, str]:
    """Return what a difference from the baseline means, as a kind and as one sentence with its numbers.

    ``seeds``: how many pair with the baseline. ``margin``: smaller differences count as equal, as set before measuring.
    ``unit``: of the metric. ``detecting``: say which difference could have been detected, where none was.

    >>> describe_difference(None, 4, higher_is_better=True, margin=1.0)
    ('too few seeds', 'too few seeds to tell (4 of at least 5)')
    """
    if gap is None or seeds < MIN_SEEDS:
        return "too few seeds", f"too few seeds to tell ({seeds} of at least {MIN_SEEDS})"
    joined = _describe_block(gap.block)
    if gap.significant:
        kind: VerdictKind = "better" if (gap.value > 0) == higher_is_better else "worse"
        low, high = sorted((abs(gap.low), abs(gap.high)))
        places = choose_digits(low, high, digits, format_number)
        size, *ends = [format_number(value, places) for value in (abs(gap.value), low, high)]
        small = f", less than the margin of {format_margin(margin, unit)}" if high < margin else ""
        return kind, f"{kind} by {size} {unit} [{', '.join(ends)}]{small}{joined}"
    if gap.is_within(margin):
        least, most = format_range(*gap.inner, digits)
        return "equivalent", f"equivalent: the difference is from {least} to {most} {unit}, within ±{margin:g}{joined}"
    least, most = format_range(gap.low, gap.high, digits)
    same = "the same on every test item of every seed; over further items " if gap.error == 0 and not gap.value else ""
    text = f"undecided: {same}the difference is from {least} to {most} {unit}"
    if detecting and gap.detectable:
        text += f" ({format_number(gap.detectable, digits)} could have been detected)"
    return "undecided", text + joined


def _describe_block(length: int) -> str:
    """Say that so many neighbouring items count as one; an empty text where each counts."""
    return "" if length == 1 else f"; test items hang together with their neighbours, so each {length} count as one"


def format_range(low: float, high: float, digits: int) -> tuple[str, str]:
    """Return both ends with their signs, and digits enough to tell them apart, and each from 0; -0.0 is 0.0.

    >>> format_range(-0.0004, 0.072, 3)
    ('−0.0004', '+0.072')
    """
    digits = choose_digits(low, high, digits)
    ends = []
    for value in (low, high):
        text = format_number(abs(value), digits)
        ends.append(f"{'−' if value < 0 else '+'}{text}" if float(text) else f"+{0:.{digits}f}")
    return ends[0], ends[1]


def format_number(value: float, digits: int = 1) -> str:
    """Return a number with ``digits`` decimals, and with more where those would all be 0."""
    while digits < 6 and value and round(abs(value), digits) < 10**-digits:
        digits += 1
    return f"{value:.{digits}f}"


def _rank_torn(
    means: Mapping[str, Sequence[float]], learning: Mapping[str, Learning], plan: Plan
) -> dict[str, tuple[VerdictKind, str]]:
    """Return kind and sentence for each variant of which too few seeds learned and whose ranks show a difference.

    ``means``: the score of every seed that ended, by variant. The tests share their error (Bonferroni).
    """
    base, theirs = learning[plan.baseline], means[plan.baseline]
    torn = [
        name
        for name, own in learning.items()
        if name != plan.baseline
        and (own.mixed or base.mixed)
        and len({*own.scored} & {*base.scored}) < MIN_SEEDS
        and min(len(means[name]), len(theirs)) >= MIN_SEEDS
    ]
    ranked: dict[str, tuple[VerdictKind, str]] = {}
    for name in torn:
        ours = means[name]
        p = min(1.0, len(torn) * compare_ranks(ours, theirs))
        if p < LEARNING_ALPHA:
            above = float(np.median(ours)) > float(np.median(theirs))
            kind: VerdictKind = "better" if above == plan.higher_is_better else "worse"
            mine, other = [f"{min(row):.{plan.digits}f} to {max(row):.{plan.digits}f}" for row in (ours, theirs)]
            test = "exact rank test" if is_ranked_exactly(len(ours), len(theirs)) else "rank test over random divisions"
            scores = f"its seeds score {mine}, and the baseline's {other} ({test}, p {format_p(p)})"
            ranked[name] = kind, f"{kind}: {scores}; {_describe_counts(learning[name], base)}"
    return ranked


def _describe_counts(ours: Learning, base: Learning) -> str:
    """Return how many seeds learned, of the variant and of the baseline; the intervals stand in a column beside."""
    (right, total), (base_right, base_total) = ours.counts, base.counts
    return f"{right} of {total} seeds learned, and {base_right} of the baseline's {base_total}"


def format_p(p: float) -> str:
    """Return what stands behind "p": "= 0.008", or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


MIN_INTERVAL_SEEDS = 3
"""Seeds from which on a score has an interval."""


@dataclass(frozen=True)
class Verdict:
    """What is known of one variant. ``difference`` is None for the baseline and where fewer than two seeds pair.

    ``learning``: which seeds learned; where only some did, ``score``, ``interval`` and ``difference`` are of those.
    ``learning_p``: of the exact test that as many seeds learn as of the baseline, for all variants together.
    ``probability``: that a seed of it beats a seed of the baseline. ``reached``: seeds that reached the plan's target.
    ``block``: so many neighbouring test items count as one in ``interval``; ``difference`` has a length of its own.
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
    difference: PairedDifference | None
    probability: float | None
    kind: VerdictKind
    sentence: str
    block: int = 1


def judge(comparison: Comparison) -> list[Verdict]:
    """Return the verdicts on all variants of a plan, the baseline first.

    Raises DataError for a trial with test items that have no number, UsageError for one with other test items.
    """
    plan, groups = comparison.plan, find_groups(comparison)
    names = [plan.baseline, *(variant.name for variant in plan.variants if variant.name != plan.baseline)]
    threshold = find_threshold(comparison)
    learning = {name: classify_seeds(comparison, name, threshold) for name in names}
    gaps = _find_differences(comparison, learning)
    counts = compare_counts([learning[name].counts for name in names[1:]], learning[plan.baseline].counts)
    ps = dict(zip(names[1:], counts, strict=True))
    # Of all seeds that ended, whether they learned or not.
    means = {name: [float(scores_N.mean()) for scores_N in score_matrix(comparison, name)] for name in names}
    ranked = _rank_torn(means, learning, plan)
    scores = {name: score_matrix(comparison, name, learning[name].scored) for name in names}
    many = {name: scores_SN for name, scores_SN in scores.items() if len(scores_SN) >= MIN_INTERVAL_SEEDS}
    block = find_block_length([*many.values()], groups)
    sign = 1 if plan.higher_is_better else -1
    verdicts = []
    for name in names:
        ours, gap, ended = learning[name], gaps.get(name), comparison.get_trials(name)
        interval, probability, scores_S = None, None, np.zeros(0)
        if len(scores[name]):
            scores_S = scores[name].mean(axis=1)
        if name in many:
            interval = bound_mean(many[name], groups=groups, block=block, top=find_top(plan))
        if name != plan.baseline and means[name] and means[plan.baseline]:
            own, base = (sign * np.array(means[side]) for side in (name, plan.baseline))
            probability = compute_improvement_probability(own, base)
        kind, sentence = _describe(comparison, name, learning, gap, ps.get(name), ranked.get(name))
        if kind == "baseline" and interval is not None:
            sentence += _describe_block(block)
        verdicts.append(Verdict(
            variant=name, planned=len(plan.seeds), finished=len(ended), diverged=len(ours.diverged),
            failed=len(comparison.get_trials(name, "failed")),
            reached=sum(trial.reached is not None for trial in ended),
            learning=ours, learning_p=ps.get(name), score=float(scores_S.mean()) if len(scores_S) else None,
            interval=interval, interquartile=compute_interquartile_mean(scores_S) if len(scores_S) else None,
            difference=gap, probability=probability, kind=kind, sentence=sentence, block=block,
        ))  # fmt: skip
    return verdicts


def _find_differences(comparison: Comparison, learning: Mapping[str, Learning]) -> dict[str, PairedDifference]:
    """Return the difference of each variant from the baseline, over the seeds of both that stand for them.

    Those with seeds enough for a verdict are compared together (max-t), the others each alone (Bonferroni). Where the
    differences of neighbouring items hang together, blocks of these count as one.
    """
    base, shared = comparison.plan.baseline, max(1, len(learning) - 1)
    top = find_top(comparison.plan)
    seeds = {name: sorted({*learning[name].scored} & {*learning[base].scored}) for name in learning if name != base}
    paired = [name for name in seeds if len(seeds[name]) >= 2]
    ours = {name: score_matrix(comparison, name, seeds[name]) for name in paired}
    theirs = {name: score_matrix(comparison, base, seeds[name]) for name in paired}
    groups = find_groups(comparison)
    enough = [name for name in paired if len(seeds[name]) >= MIN_SEEDS]
    same_shape = all(ours[name].shape == theirs[name].shape for name in paired)  # others are refused below
    block = find_block_length([ours[name] - theirs[name] for name in paired], groups) if same_shape else 1
    known: dict[str, Any] = {"groups": groups, "block": block, "top": top}
    together = [ours[name] for name in enough], [theirs[name] for name in enough]
    judged = compare_with_baseline(*together, **known) if enough else []
    gaps = dict(zip(enough, judged, strict=True))
    for name in paired:
        if name not in gaps:
            gaps[name] = estimate_difference(ours[name], theirs[name], shared, **known)
    reach = math.inf if top is None else top
    return {name: gap.within(reach) for name, gap in gaps.items()}


def format_score(verdict: Verdict, digits: int) -> str:
    """Return the score with its interval as text, or that there is none."""
    if verdict.score is None:
        return "no seed finished"
    if verdict.interval is None:
        return f"{verdict.score:.{digits}f}"
    digits = choose_digits(*verdict.interval, digits)
    return f"{verdict.score:.{digits}f} [{verdict.interval[0]:.{digits}f}, {verdict.interval[1]:.{digits}f}]"


COLUMNS = ("variant", "score", "difference", "P(better)", "p", "learned", "verdict")
"""The columns of the table for a README."""


def format_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return every variant as the cells of ``COLUMNS``, the baseline first."""
    digits = comparison.plan.digits
    rows: list[tuple[str, ...]] = []
    for verdict in judge(comparison):
        signed, p, gap = "", "", verdict.difference
        if gap is not None:
            places = choose_digits(gap.low, gap.high, digits)
            signed = f"{gap.value:+.{places}f} [{gap.low:+.{places}f}, {gap.high:+.{places}f}]"
            p = "< 0.001" if gap.adjusted < 0.001 else f"{gap.adjusted:.3f}"
        better = "" if verdict.probability is None else f"{verdict.probability:.2f}"
        score = format_score(verdict, digits)
        rows.append((verdict.variant, score, signed, better, p, str(verdict.learning), verdict.sentence))
    return rows


def _describe(
    comparison: Comparison,
    variant: str,
    learning: Mapping[str, Learning],
    gap: PairedDifference | None,
    learning_p: float | None,
    ranked: tuple[VerdictKind, str] | None,
) -> tuple[VerdictKind, str]:
    """Return the kind and the sentence: whether it learns as often, then by how much those that learned differ."""
    plan, costs = comparison.plan, comparison.costs
    ours, base = learning[variant], learning[plan.baseline]
    # What a reader must know beside the score: seeds that are missing, and another number of steps.
    missing = {"diverged": len(ours.diverged), "failed": len(comparison.get_trials(variant, "failed"))}
    texts = [f"{count} of {len(plan.seeds)} {status}" for status, count in missing.items() if count]
    lost = f"; {' and '.join(texts)}" if texts else ""
    if variant in costs and plan.baseline in costs and costs[variant].steps != costs[plan.baseline].steps:
        lost += f"; {costs[variant].steps:,} steps against {costs[plan.baseline].steps:,}"
    if variant == plan.baseline:
        return "baseline", f"the baseline{lost}"
    if not ours.learned and not base.learned and ours.unlearned and base.unlearned:
        unit = " %" if plan.metric == "exact" else ""
        means = [score_matrix(comparison, name).mean() for name in (variant, plan.baseline)]
        scores = " against ".join(f"{mean:.{plan.digits}f}{unit}" for mean in means)
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
    counts = _describe_counts(ours, base)
    if learning_p is not None and learning_p < LEARNING_ALPHA:
        (right, total), (base_right, base_total) = ours.counts, base.counts
        decided: VerdictKind = "better" if right / total > base_right / base_total else "worse"
        learned = f"{counts} (exact test, p {format_p(learning_p)})"
        if kind == decided:
            sentence = f"{sentence}; {learned}"
        elif kind in ("better", "worse"):
            sentence = f"{decided}: {learned}; those that learned are {sentence}"
        else:
            sentence = f"{decided}: {learned}"
        kind = decided
    elif ranked is not None:
        kind, sentence = ranked
    elif (ours.mixed or base.mixed) and kind == "too few seeds":
        sentence = f"too few seeds to tell: {counts}"
    elif ours.mixed or base.mixed:
        sentence += f" among the seeds that learned; {counts}"
    return kind, sentence + lost
