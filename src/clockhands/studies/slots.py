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
        name, rest, unit = slot[1], slot[2] or "", slot[3] or ""
        if name == "score":
            return _format_score(verdicts[rest], comparison, unit)
        return _find_measured(name, rest, comparison, verdicts, growths) + unit

    return FILLED.sub(replace, text)


def _format_score(verdict: Verdict, comparison: Comparison, unit: str) -> str:
    """Return a score; where not all seeds learned, that of those which did, or of a few all seeds, and how many."""
    digits, learning = comparison.plan.digits, verdict.learning
    learned, total = learning.counts
    if not learning.mixed or verdict.score is None:
        return format_score(verdict, digits) + unit
    if learned >= FEWEST_LEARNED:  # an interval over a few of the seeds tells nothing
        return f"{verdict.score:.{digits}f}{unit} in the {learned} of {total} seeds that learned"
    means = [float(trial.items_N.mean()) for trial in comparison.get_trials(verdict.variant)]
    ended = f"the {len(means)} seeds that ended" if learning.diverged else "its seeds"
    scores = f"{min(means):.{digits}f} to {max(means):.{digits}f}{unit}"
    return f"{scores} over {ended}, of which {learned} of {total} learned"


def _find_measured(slot: str, rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict], growths: int) -> str:
    """Return what a slot other than the score holds, without its unit."""
    plan = comparison.plan
    match slot:
        case "items":
            return f"{score_matrix(comparison, plan.baseline).shape[1]:,}"
        case "vocabulary":
            return f"{len(load_material(plan.get_recipe(plan.baseline, plan.seeds[0])).tokenizers.source):,}"
        case "ceiling":
            return f"{100 * find_ceiling_once(plan).share:.1f}"
        case "bar":
            if plan.learned is None:
                raise KeyError("the study sets no score from which a seed has learned")
            return f"{plan.learned:g}"
        case "kind":
            return verdicts[rest].kind
        case "verdict":
            return verdicts[rest].sentence.replace(" (", ", ").replace(")", "")
        case "reached":
            return describe_pace(comparison, verdicts[rest].variant)
        case "slower":
            return describe_slower(comparison, verdicts[rest].variant)
        case "other":
            variant, _, metric = rest.rpartition(":")
            scored = comparison.scored_by(metric)
            verdict = next(verdict for verdict in judge(scored) if verdict.variant == variant)
            return format_score(verdict, scored.plan.digits)
        case "alone":
            measured = [trial.measured.before for trial in comparison.get_trials(verdicts[rest].variant)]
            ratios = [values["word over position"] for values in measured if "word over position" in values]
            return format_interval([100 * share_scores(ratio)[2] for ratio in ratios], 1)
        case "during" | "before" | "after" | "longer" | "growth":
            return _find_number(slot, rest, comparison, verdicts, growths)
    raise KeyError(f"an answer has no slot {slot!r}")


def _find_number(slot: str, rest: str, comparison: Comparison, verdicts: Mapping[str, Verdict], growths: int) -> str:
    """Return a measure inside the models, or a loss on a split of longer text, over the seeds of a variant.

    Raises KeyError for a step at which nothing was measured, with the steps at which it was.
    """
    left, _, name = rest.rpartition(":")
    variant, _, written = left.rpartition(":") if slot == "during" else (left, "", "")
    trials = comparison.get_trials(verdicts[variant].variant)
    most = 1.0 if name.startswith(SHARES) else None
    if slot == "during":
        step = int(written)
        courses = [{at: values[name] for at, values in trial.measured.during if name in values} for trial in trials]
        steps = sorted({at for course in courses for at in course})
        if steps and step not in steps:
            known = ", ".join(map(str, steps))
            raise KeyError(f"{name!r} of {variant!r} was measured at the steps {known}, not at {step}")
        return format_interval([course[step] for course in courses if step in course], 2, most=most)
    if slot in ("before", "after"):
        measured = [trial.measured.before if slot == "before" else trial.measured.after for trial in trials]
        return format_interval([values[name] for values in measured if name in values], 2, most=most)
    read = [trial for trial in trials if name in trial.longer]
    if slot == "growth":
        grown = [trial.longer[name].loss for trial in read]
        over = [loss - trial.scores["loss"] for loss, trial in zip(grown, read, strict=True) if loss is not None]
        return format_interval(over, 3, sign="+", alpha=ALPHA / growths)
    if trials and len(read) == len(trials) and all(trial.longer[name].refused for trial in read):
        return REFUSED  # every model of a variant refused longer text, as one does whose table ends
    losses = [trial.longer[name].loss for trial in read]
    return format_interval([loss for loss in losses if loss is not None], 2, most=most)


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
