"""The slots that pages alone have, beside those of a study's own answer (`clockhands.studies.answer`).

``kind:VARIANT`` (the verdict in one word), ``during:VARIANT:STEP:MEASURE`` (at an evaluation), ``growth:VARIANT:SPLIT``
(of the loss, over the test split), ``other:VARIANT:METRIC`` (the score by another metric of the same items),
``reached:VARIANT`` (the steps after which its seeds reached the plan's target), ``slower:VARIANT`` (how many seeds took
longer to it than the baseline's, with an exact test), ``vocabulary`` (tokens that the
model reads), ``bar`` (the score from which a seed has learned), ``alone:VARIANT`` (the share of positions alone in the
variance of a score, by how words and positions vary before training).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from clockhands.comparison import Comparison
from clockhands.comparison.statistics.exact import compare_ranks
from clockhands.comparison.statistics.paired import ALPHA
from clockhands.comparison.trial_runner import load_material
from clockhands.comparison.verdicts import Verdict, format_p, format_score, judge
from clockhands.studies.answer import NOT_MEASURED, SHARES, fill_slots, format_interval, list_values


def fill_slot(slot: str, comparison: Comparison, verdicts: Mapping[str, Verdict], growths: int = 1) -> str:
    """Return what stands in one slot, such as ``score:VARIANT``. Raises KeyError for a slot of nothing.

    ``growths``: over how many growths of a loss their intervals hold together (Bonferroni).
    """
    name, _, rest = slot.partition(":")
    if name == "growth":
        variant, _, split = rest.rpartition(":")
        trials = comparison.get_trials(verdicts[variant].variant)
        pairs = [(trial.longer[split].loss, trial.scores["loss"]) for trial in trials if split in trial.longer]
        values = [longer - loss for longer, loss in pairs if longer is not None]
        return format_interval(values, 3, sign="+", alpha=ALPHA / growths)
    if name in SLOTS:
        return SLOTS[name](rest, comparison, verdicts)
    return fill_slots(f"[[{slot}]]", comparison, verdicts)


def _find_other(rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    variant, _, metric = rest.rpartition(":")
    scored = comparison.scored_by(metric)
    return format_score({verdict.variant: verdict for verdict in judge(scored)}[variant], scored.plan.digits)


def _count_vocabulary(rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    plan = comparison.plan
    return f"{len(load_material(plan.get_recipe(plan.baseline, plan.seeds[0])).tokenizers.source):,}"


def _find_share_alone(rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    ratios = list_values("before", "word over position", comparison, verdicts[rest].variant)
    return format_interval([100 * share_scores(ratio)[2] for ratio in ratios], 1)


def _find_bar(rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    if comparison.plan.learned is None:
        raise KeyError("the study sets no score from which a seed has learned")
    return f"{comparison.plan.learned:g}"


def _find_during(rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    variant, step, name = rest.rsplit(":", 2)
    at_step = _list_at_step(int(step), name, comparison, verdicts[variant].variant)
    return format_interval(at_step, 2, most=1.0 if name.startswith(SHARES) else None)


SLOTS: Mapping[str, Callable[[str, Comparison, Mapping[str, Verdict]], str]] = {
    "other": _find_other,
    "vocabulary": _count_vocabulary,
    "alone": _find_share_alone,
    "bar": _find_bar,
    "during": _find_during,
    "kind": lambda rest, _, verdicts: verdicts[rest].kind,
    "reached": lambda rest, comparison, verdicts: describe_pace(comparison, verdicts[rest].variant),
    "slower": lambda rest, comparison, verdicts: describe_slower(comparison, verdicts[rest].variant),
}


def _list_at_step(step: int, name: str, comparison: Comparison, variant: str) -> list[float]:
    """Of every seed: a measure at a step of training. Raises KeyError with the steps at which there is one."""
    trials = comparison.get_trials(variant)
    courses = [{at: values[name] for at, values in trial.measured.during if name in values} for trial in trials]
    if steps := sorted({at for course in courses for at in course} if not any(step in c for c in courses) else ()):
        raise KeyError(f"{name!r} of {variant!r} was measured at the steps {', '.join(map(str, steps))}, not at {step}")
    return [course[step] for course in courses if step in course]


LATER: Literal["later"] = "later"


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


def share_scores(word_over_position: float) -> tuple[float, float, float]:
    """Return the shares of word–word, both mixed terms together, and position–position in the variance of a score.

    (Q(x + e))ᵀ(K(y + f)) has four terms. Under projections with independent entries the variance of each is
    proportional to the product of its two squared lengths: with r = ‖x‖/‖e‖ they are as r⁴ : 2r² : 1.
    """
    squared = word_over_position**2
    whole = (squared + 1) ** 2
    return squared**2 / whole, 2 * squared / whole, 1 / whole
