"""What verdicts are computed from: scores by seed and test item, the groups of the items, and the best score."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from clockhands.comparison.plan import Plan
from clockhands.comparison.results import Comparison
from clockhands.comparison.statistics import name_cells
from clockhands.comparison.variance_parts import Matrix
from clockhands.errors import DataError, UsageError


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
    """Return the best score that the plan's metric can give an item; None where there is none (``bleu_items.py``)."""
    return None if plan.metric in ("loss", "bleu") else 100.0
