"""The answer to a study's question: its sentences with what was measured, and what the verdicts allow to conclude."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from clockhands.comparison import Comparison, conclude
from clockhands.comparison.learning import score_matrix
from clockhands.comparison.plan import METRICS
from clockhands.comparison.statistics.paired import ALPHA, bound_mean
from clockhands.comparison.verdicts import Verdict, format_score, judge
from clockhands.findings import Finding, Findings, choose_digits, join_words
from clockhands.studies.soundness import check_ordering, find_ceiling_once, tally_orderings
from clockhands.studies.study import Study

SLOT = re.compile(r"\[\[(\w+)(?::(.+?))?\]\]")
FILLED = re.compile(SLOT.pattern + r"( %)?")
"""A slot with the percent sign behind it, after which comes what must be said of a score."""
SHARES = ("words recovered", "position read back", "word read back")
"""How the measures begin that are shares, at most 1."""
OF_A_VARIANT = ("score", "verdict")
"""The slots of which all that stands behind the colon is a variant."""
REFUSED = "refused"
"""Stands in place of the loss on a longer text that a model refused to read."""
NOT_MEASURED = "(not measured)"
"""Stands in an answer for what no trial gave, as before all have run."""
FEWEST_LEARNED = 3
"""Of fewer seeds that learned no mean is told: all seeds are, from the lowest to the highest."""


def fill_slots(text: str, comparison: Comparison, verdicts: Mapping[str, Verdict]) -> str:
    """Return the text with what was measured in its slots. Raises KeyError for unknown slots and variants."""

    def fill(match: re.Match[str]) -> str:
        slot, rest, unit = match[1], match[2] or "", match[3] or ""
        if slot == "score":
            return _format_learned(verdicts[rest], comparison, unit)
        return _find_measured(slot, rest, comparison, verdicts) + unit

    return FILLED.sub(fill, text)


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
    if slot == "items":
        return f"{score_matrix(comparison, comparison.plan.baseline).shape[1]:,}"
    if slot == "ceiling":
        return f"{100 * find_ceiling_once(comparison.plan).share:.1f}"
    if slot == "verdict":
        return verdicts[rest].sentence.replace(" (", ", ").replace(")", "")
    if slot not in ("before", "after", "longer"):
        raise KeyError(f"an answer has no slot {slot!r}")
    variant, _, name = rest.rpartition(":")
    trials = comparison.get_trials(verdicts[variant].variant)
    if slot == "longer" and trials and all(name in t.longer and t.longer[name].refused for t in trials):
        return REFUSED  # every model of a variant refused longer text, as one does whose table ends
    values = list_values(slot, name, comparison, verdicts[variant].variant)
    return format_interval(values, 2, most=1.0 if name.startswith(SHARES) else None)


def list_values(slot: str, name: str, comparison: Comparison, variant: str) -> list[float]:
    """Of every seed: a measure before or after training, or the loss on a split of longer text."""
    trials = comparison.get_trials(variant)
    if slot == "longer":
        losses = [trial.longer[name].loss for trial in trials if name in trial.longer]
        return [loss for loss in losses if loss is not None]
    measured = [trial.measured.before if slot == "before" else trial.measured.after for trial in trials]
    return [values[name] for values in measured if name in values]


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


def answer_question(study: Study, comparison: Comparison) -> str:
    """Return the measured sentences, and the readings whose verdicts came out.

    A size of the study may leave variants out or rename them: where the answer speaks of such a variant, the scores and
    verdicts of the variants that there are stand in its place. Raises KeyError for an unknown slot.
    """
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    named = []
    for slot in SLOT.finditer(study.answer):
        rest = slot[2] or ""
        named.append(rest if slot[1] in OF_A_VARIANT else rest.rpartition(":")[0])
    for reading in study.readings:
        named += [*reading.when, *(variant for ordering in reading.ordered for variant in ordering.variants)]
    absent = [variant for variant in dict.fromkeys(named) if variant not in verdicts]
    planned = {variant.name for variant in study.planned.variants} if absent else set()
    if left_out := [variant for variant in absent if variant in planned]:
        digits = comparison.plan.digits
        scores = [
            f"{name}: {format_score(verdict, digits)} ({verdict.sentence})." for name, verdict in verdicts.items()
        ]
        verb = "was" if len(left_out) == 1 else "were"
        return (
            f"The study's answer is written for its planned variants, and {join_words(left_out)} {verb} not trained at "
            f"this size. Measured, {METRICS[comparison.plan.metric]}: {' '.join(scores)}"
        )
    sentences = [
        reading.say
        for reading in study.readings
        if all(verdicts[variant].kind == kind for variant, kind in reading.when.items())
        and all(
            check_ordering(ordering, comparison, len(reading.ordered)).verdict.startswith("reproduced")
            for ordering in reading.ordered
        )
    ]
    text = study.answer.replace("[[literature]]", tally_orderings(study, comparison))
    return " ".join([fill_slots(text, comparison, verdicts), *sentences])


def conclude_study(study: Study, comparison: Comparison, command: str = "") -> Findings:
    """Return the findings of the study's comparison, the answer first."""
    findings = conclude(comparison, command)
    answer = Finding(
        name="study.answer",
        question=study.question,
        verdict=answer_question(study, comparison),
        method=study.design,
        details={"claims": list(study.claims), "change": study.change},
        command=command,
    )
    return replace(findings, items=(answer, *findings.items))
