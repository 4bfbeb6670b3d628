"""The slots of a text, ``[[score:VARIANT]]``, filled with what a study measured."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from clockhands.comparison import Comparison
from clockhands.comparison.learning import score_matrix
from clockhands.comparison.statistics.exact import compare_ranks
from clockhands.comparison.statistics.paired import ALPHA, bound_mean
from clockhands.comparison.trial_runner import load_material
from clockhands.comparison.verdicts import Verdict, format_p, format_score, judge
from clockhands.findings import choose_digits
from clockhands.studies.soundness import find_ceiling_once

SLOT = re.compile(r"\[\[(\w+)(?::(.+?))?\]\]")
FILLED = re.compile(SLOT.pattern + r"( %)?")
"""A slot with the percent sign behind it, after which comes what must be said of a score."""
SHARES = ("words recovered", "position read back", "word read back")
"""How the measures begin that are shares, at most 1."""
OF_A_VARIANT = ("score", "verdict", "kind", "alone", "reached", "slower")
"""The slots of which all that stands behind the colon is a variant."""
REFUSED = "refused"
"""Stands in place of the loss on a longer text that a model refused to read."""
FEWEST_LEARNED = 3
"""Of fewer seeds that learned no mean is told: all seeds are, from the lowest to the highest."""


def fill_slots(text: str, comparison: Comparison, verdicts: Mapping[str, Verdict], growths: int = 1) -> str:
    """Return the text with what was measured in its slots. Raises KeyError for a slot of no variant.

    ``growths``: over how many growths of a loss their intervals hold together (Bonferroni).
    """

    def replace(slot: re.Match[str]) -> str:
        return _format_measured(slot[1], slot[2] or "", comparison, verdicts, slot[3] or "", growths)

    return FILLED.sub(replace, text)


def _format_measured(
    slot: str, rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict], unit: str, growths: int
) -> str:
    """Return what a slot holds, with the unit that stands behind it."""
    if slot == "growth":
        variant, _, name = rest.rpartition(":")
        trials = comparison.get_trials(verdicts[variant].variant)
        pairs = [(trial.longer[name].loss, trial.scores["loss"]) for trial in trials if name in trial.longer]
        values = [longer - loss for longer, loss in pairs if longer is not None]
        return format_interval(values, 3, sign="+", alpha=ALPHA / growths) + unit
    if slot != "score":
        return _find_measured(slot, rest, comparison, verdicts) + unit
    return _format_learned(verdicts[rest], comparison, unit)


def _format_learned(verdict: Verdict, comparison: Comparison, unit: str) -> str:
    """Return a score; where not all seeds learned, that of those which did, or of a few all seeds, and how many."""
    digits, learning = comparison.plan.digits, verdict.learning
    learned, total = learning.counts
    if not learning.mixed or verdict.score is None:
        return format_score(verdict, digits) + unit
    if learned >= FEWEST_LEARNED:  # an interval over a few of the seeds tells nothing
        return f"{verdict.score:.{digits}f}{unit} in the {learned} of {total} seeds that learned"
    means = [float(trial.items_N.mean()) for trial in comparison.get_trials(verdict.variant)]
    ended = f"the {len(means)} seeds that ended" if learning.diverged else "its seeds"
    return (
        f"{min(means):.{digits}f} to {max(means):.{digits}f}{unit} over {ended}, of which {learned} of {total} learned"
    )


def _find_measured(slot: str, rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    if slot == "other":
        variant, _, metric = rest.rpartition(":")
        scored = comparison.scored_by(metric)
        verdict = next(verdict for verdict in judge(scored) if verdict.variant == variant)
        return format_score(verdict, scored.plan.digits)
    if slot == "items":
        return f"{score_matrix(comparison, comparison.plan.baseline).shape[1]:,}"
    if slot == "vocabulary":
        plan = comparison.plan
        material = load_material(plan.get_recipe(plan.baseline, plan.seeds[0]))
        return f"{len(material.tokenizers.source):,}"
    if slot == "alone":
        ratios = _list_values("before", "word over position", comparison, verdicts[rest].variant)
        return format_interval([100 * share_scores(ratio)[2] for ratio in ratios], 1)
    if slot == "ceiling":
        return f"{100 * find_ceiling_once(comparison.plan).share:.1f}"
    if slot == "bar":
        if comparison.plan.learned is None:
            raise KeyError("the study sets no score from which a seed has learned")
        return f"{comparison.plan.learned:g}"
    if slot == "during":
        variant, step, name = rest.rsplit(":", 2)
        at_step = _list_at_step(int(step), name, comparison, verdicts[variant].variant)
        return format_interval(at_step, 2, most=1.0 if name.startswith(SHARES) else None)
    if slot in ("before", "after", "longer"):
        variant, _, name = rest.rpartition(":")
        trials = comparison.get_trials(verdicts[variant].variant)
        if slot == "longer" and trials and all(name in t.longer and t.longer[name].refused for t in trials):
            return REFUSED  # every model of a variant refused longer text, as one does whose table ends
        values = _list_values(slot, name, comparison, verdicts[variant].variant)
        return format_interval(values, 2, most=1.0 if name.startswith(SHARES) else None)
    if slot == "reached":
        return describe_pace(comparison, verdicts[rest].variant)
    if slot == "slower":
        return describe_slower(comparison, verdicts[rest].variant)
    if slot == "kind":
        return verdicts[rest].kind
    if slot == "verdict":
        return verdicts[rest].sentence.replace(" (", ", ").replace(")", "")
    raise KeyError(f"an answer has no slot {slot!r}")


def _list_values(slot: str, name: str, comparison: Comparison, variant: str) -> list[float]:
    """Of every seed: a measure before or after training, or the loss on a split of longer text."""
    trials = comparison.get_trials(variant)
    if slot == "longer":
        losses = [trial.longer[name].loss for trial in trials if name in trial.longer]
        return [loss for loss in losses if loss is not None]
    measured = [trial.measured.before if slot == "before" else trial.measured.after for trial in trials]
    return [values[name] for values in measured if name in values]


def _list_at_step(step: int, name: str, comparison: Comparison, variant: str) -> list[float]:
    """Of every seed: a measure at a step of training. Raises KeyError with the steps at which there is one."""
    trials = comparison.get_trials(variant)
    courses = [{at: values[name] for at, values in trial.measured.during if name in values} for trial in trials]
    if steps := sorted({at for course in courses for at in course} if not any(step in c for c in courses) else ()):
        raise KeyError(f"{name!r} of {variant!r} was measured at the steps {', '.join(map(str, steps))}, not at {step}")
    return [course[step] for course in courses if step in course]


def format_interval(
    values: Sequence[float],
    digits: int,
    *,
    sign: Literal["", "+"] = "",
    most: float | None = None,
    alpha: float = ALPHA,
) -> str:
    """Return mean and 1 - α interval over seeds as text; a number that is the same for every seed has none.

    ``sign``: "+" shows that of a positive number too. ``most``: of a share, which no end of an interval can exceed.
    """
    if not values:
        return NOT_MEASURED

    def show(value: float, places: int = digits) -> str:
        return f"{round(value, places) + 0.0:{sign}.{places}f}".replace("-", "−")

    mean = sum(values) / len(values)
    if max(values) - min(values) < 10**-digits / 2:
        return show(mean)
    low, high = bound_mean(np.array(values)[:, None], alpha)
    high = high if most is None else min(high, most)
    ends = [show(end, choose_digits(abs(end), 0.0, digits) if sign else digits) for end in (low, high)]
    return f"{show(mean)} [{', '.join(ends)}]"


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


def share_scores(word_over_position: float) -> tuple[float, float, float]:
    """Return the shares of word–word, both mixed terms together, and position–position in the variance of a score.

    (Q(x + e))ᵀ(K(y + f)) has four terms. Under projections with independent entries the variance of each is
    proportional to the product of its two squared lengths: with r = ‖x‖/‖e‖ they are as r⁴ : 2r² : 1.
    """
    squared = word_over_position**2
    whole = (squared + 1) ** 2
    return squared**2 / whole, 2 * squared / whole, 1 / whole
