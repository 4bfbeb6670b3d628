"""What verdicts are computed from: scores by seed and test item, the groups of the items, and the best score."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics.paired import name_cells
from clockhands.comparison.statistics.variance import Matrix, group_items
from clockhands.errors import DataError, UsageError
from clockhands.generation.score import bound_share


def score_matrix(comparison: Comparison, variant: str, seeds: Collection[int] | None = None) -> Matrix:
    """Return the metric of a variant's finished trials, seeds × test items.

    Raises DataError for a trial with items that have no number, UsageError for trials with different numbers of items.
    """
    trials = [trial for trial in comparison.get_trials(variant) if seeds is None or trial.seed in seeds]
    if not trials:
        return np.zeros((0, 0))
    counts = {trial.seed: len(trial.items_N) for trial in trials}
    if len({*counts.values()}) > 1:
        listed = ", ".join(f"seed {seed} has {count:,}" for seed, count in counts.items())
        raise UsageError(
            f"the trials of {variant!r} have different numbers of test items ({listed}): some were measured on other "
            "text, or by another version of Clockhands; run the comparison in a new folder"
        )
    scores_SN = np.stack([trial.items_N for trial in trials])
    if not np.isfinite(scores_SN).all():
        trial = next(trial for trial in trials if not np.isfinite(trial.items_N).all())
        where = name_cells(trial.items_N[None]).removesuffix(" of row 0")
        raise DataError(f"the trial of {variant!r} with seed {trial.seed} has no score for {where} (from 0)")
    return scores_SN


def find_groups(comparison: Comparison) -> tuple[int, ...] | None:
    """Return the groups of the test items, which all trials share; None where no items hang together."""
    return next((trial.groups for trial in comparison.trials if trial.groups is not None), None)


def find_top(plan: Plan) -> float | None:
    """Return the best score that the plan's metric can give an item; None where there is none (``score_items``)."""
    return None if plan.metric in ("loss", "bleu") else 100.0


SHARE = {"exact": 0.2, "bleu": 0.2, "chrf": 0.5}
"""A seed that scores less than this share of the best seed has not learned, unless the plan says what has."""
LEAST = {"exact": 1.0, "bleu": 1.0, "chrf": 5.0}
"""Points below which no seed has learned, however bad the others are."""
APART = 0.05
"""Seeds on both sides of the threshold are of two kinds only if they differ at this level of significance."""


@dataclass(frozen=True)
class Learning:
    """The seeds of a variant by what became of them; a trial that failed for a reason of the machine's is in none."""

    learned: tuple[int, ...] = ()
    unlearned: tuple[int, ...] = ()
    diverged: tuple[int, ...] = ()

    @property
    def counts(self) -> tuple[int, int]:
        """How many seeds learned, and of how many."""
        return len(self.learned), len(self.learned) + len(self.unlearned) + len(self.diverged)

    @property
    def complete(self) -> bool:
        """Whether every seed learned."""
        return not self.unlearned and not self.diverged

    @property
    def mixed(self) -> bool:
        """Whether some seeds learned and some trained to their end without."""
        return bool(self.learned and self.unlearned)

    @property
    def scored(self) -> tuple[int, ...]:
        """The seeds whose scores stand for the variant: those that learned, or all that ended where none did."""
        return self.learned or self.unlearned

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the share of seeds that learn, in percent."""
        learned, total = self.counts
        if not total:
            return 0.0, 100.0
        low, high = bound_share(learned / total, total)
        return 100 * low, 100 * high

    def __str__(self) -> str:
        """Return the counts with the interval of the share.

        >>> str(Learning((1, 2, 3, 4, 5)))
        '5 of 5, at least 48 %'
        """
        learned, total = self.counts
        low, high = self.interval
        if not total:
            return "none ended"
        if learned == total:
            return f"{learned} of {total}, at least {np.ceil(low - 0.5):.0f} %"
        if not learned:
            return f"{learned} of {total}, at most {np.floor(high + 0.5):.0f} %"
        return f"{learned} of {total}, {low:.0f} to {high:.0f} %"


def find_threshold(comparison: Comparison) -> float | None:
    """Return the score from which a seed has learned: the plan's, or a share of the best seed's.

    None for a loss of which the plan says nothing: there every seed that ended counts as having learned.
    """
    plan = comparison.plan
    if plan.learned is not None:
        return float(plan.learned)
    if plan.metric not in SHARE:
        return None
    best = max((float(trial.items_N.mean()) for trial in comparison.trials if trial.finished), default=0.0)
    return max(SHARE[plan.metric] * best, LEAST[plan.metric])


def classify_seeds(comparison: Comparison, variant: str, threshold: float | None) -> Learning:
    """Return which seeds of a variant learned.

    Where seeds lie on both sides of a threshold that the plan did not set, and differ no more than their test items
    make them differ (`compare_seeds`), it divides nothing: all count as their mean does.
    """
    items = {trial.seed: trial.items_N for trial in comparison.get_trials(variant)}
    scores = {seed: float(items_N.mean()) for seed, items_N in items.items()}
    higher = comparison.plan.higher_is_better

    def passes(score: float) -> bool:
        return threshold is None or (score >= threshold if higher else score <= threshold)

    right = {seed: passes(score) for seed, score in scores.items()}
    divided = comparison.plan.learned is None and len({*right.values()}) == 2
    if divided and compare_seeds(score_matrix(comparison, variant), find_groups(comparison)) > APART:
        right = dict.fromkeys(right, passes(float(np.mean([*scores.values()]))))
    return Learning(
        learned=tuple(seed for seed in right if right[seed]),
        unlearned=tuple(seed for seed in right if not right[seed]),
        diverged=tuple(trial.seed for trial in comparison.get_trials(variant, "diverged")),
    )


def compare_seeds(items_SN: Matrix, groups: Sequence[int] | None = None) -> float:
    """Return the p of an analysis of variance: whether seeds differ more than their test items make them differ.

    Every seed has the same items, which are blocks, so that hard and easy ones take nothing from the test. Items of a
    group count as one, which weighs by its size. Where the items leave nothing over to compare with, 1 for seeds that
    are alike and 0 for others; of a single item, or a single seed, 1, since nothing can be shown.
    """
    means_SG, sizes_G = group_items(items_SN, groups)
    seeds, items = means_SG.shape
    if min(seeds, items) < 2:
        return 1.0
    means_SG = means_SG * (sizes_G / sizes_G.mean())
    rows_S1 = means_SG.mean(axis=1, keepdims=True)
    rest_SG = means_SG - rows_S1 - means_SG.mean(axis=0) + means_SG.mean()
    free = (seeds - 1) * (items - 1)
    rest = float((rest_SG**2).sum()) / free
    if not rest:
        return 0.0 if np.ptp(rows_S1) else 1.0
    return float(stats.f.sf(items * rows_S1.var(ddof=1) / rest, seeds - 1, free))
