"""What the literature reports of two variants, beside what was measured here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clockhands.comparison import Comparison
from clockhands.comparison.learning import find_groups, find_top, score_matrix
from clockhands.comparison.plan import MARGINS
from clockhands.comparison.statistics.paired import MIN_SEEDS, Difference, estimate_difference
from clockhands.errors import ConfigError
from clockhands.findings.finding import join_words
from clockhands.shapes import Float
from clockhands.studies.study import Ordering, Study


@dataclass(frozen=True)
class CheckedOrdering:
    """A reported ordering, the difference that was measured, as text, and whether that agrees."""

    claim: str
    source: str
    measured: str
    verdict: str


def check_orderings(study: Study, comparison: Comparison) -> list[CheckedOrdering]:
    """Return every reported ordering with what was measured; intervals are simultaneous over all of them.

    An ordering of variants that this comparison does not have was not tried, and is left out.
    """
    tried = list_tried(study, comparison)
    return [check_ordering(ordering, comparison, len(tried)) for ordering in tried]


def list_tried(study: Study, comparison: Comparison) -> list[Ordering]:
    """Return the reported orderings of which the comparison has both variants."""
    names = {variant.name for variant in comparison.plan.variants}
    return [ordering for ordering in study.orderings if {*ordering.variants} <= names]


def tally_orderings(study: Study, comparison: Comparison) -> str:
    """Return how many of the reported orderings came out, in words."""
    verdicts = [checked.verdict for checked in check_orderings(study, comparison)]
    counts = {words: sum(verdict.startswith(begins) for verdict in verdicts) for begins, words in WORDS.items()}
    parts = [f"{count} {words}" for words, count in counts.items() if count or words != WORDS[EQUAL]]
    return f"{len(verdicts)} orderings that the literature reports, {join_words(parts)}"


INSIDE = ("before: ", "after: ")
"""How ``on`` begins for what was measured inside the models."""
EQUAL = "equal"
"""How the verdict begins on a reported difference that is shown to be smaller than the margin, if there is any."""
WORDS = {
    "reproduced": "are reproduced here",
    "contradicted": "contradicted",
    EQUAL: "shown to be equal within the margin",
    "undecided": "undecided",
}


def check_ordering(ordering: Ordering, comparison: Comparison, comparisons: int) -> CheckedOrdering:
    """Compare the two variants of an ordering on the seeds that both finished, the first minus the second.

    The difference is above 0 if the claim holds; a claim of equality has ``alike``. Raises ConfigError for a claim of
    equality on a measure, for which no margin was set.
    """
    first, second = ordering.variants
    if ordering.alike and ordering.on.startswith(INSIDE):
        fault = f"no margin was set for {ordering.on!r}, so that no two variants can be shown to be equal"
        raise ConfigError([fault], "the ordering")
    if ordering.in_every_seed:
        above, seeds = count_seeds_above(ordering, comparison)
        verdict = {seeds: "reproduced", 0: "contradicted"}.get(above, "undecided")
        verdict = verdict if seeds >= MIN_SEEDS else "undecided"
        return CheckedOrdering(ordering.claim, ordering.source, f"{above} of {seeds} seeds", verdict)
    gap = estimate_gap(ordering, comparison, comparisons)
    if isinstance(gap, int):
        few = f"undecided: too few seeds of both finished ({gap} of at least {MIN_SEEDS})"
        return CheckedOrdering(ordering.claim, ordering.source, "", few)
    measured = f"{first} − {second}, {ordering.on}: {gap.value:+.3g} [{gap.low:+.3g}, {gap.high:+.3g}]"
    # That a reported difference is smaller than the margin is no contradiction: what was reported may be smaller too.
    margin = find_margin(ordering, comparison)
    within = not ordering.on.startswith(INSIDE) and gap.is_within(margin)
    if ordering.alike and within:
        verdict = f"reproduced (equal within ±{margin:g})"
    elif ordering.alike:
        verdict = "contradicted" if gap.significant else f"undecided (not shown to be equal within ±{margin:g})"
    elif gap.significant:
        verdict = "reproduced" if gap.value > 0 else "contradicted"
    else:
        verdict = f"{EQUAL} within ±{margin:g}" if within else "undecided"
    return CheckedOrdering(ordering.claim, ordering.source, measured, verdict)


def estimate_gap(ordering: Ordering, comparison: Comparison, comparisons: int) -> Difference | int:
    """Return the first variant minus the second, or how many seeds of both finished where those are too few."""
    whole = ordering.on == "score"
    groups, top = (find_groups(comparison), find_top(comparison.plan)) if whole else (None, None)
    values = [list_values(comparison, variant, ordering.on) for variant in ordering.variants]
    seeds = sorted(set.intersection(*map(set, values)))
    if len(seeds) < MIN_SEEDS:
        return len(seeds)
    higher, lower = (np.stack([by_seed[seed] for seed in seeds]) for by_seed in values)
    return estimate_difference(higher, lower, comparisons, groups=groups, top=top)


def count_seeds_above(ordering: Ordering, comparison: Comparison) -> tuple[int, int]:
    """Return in how many seeds the first variant is above the second, and how many both finished."""
    first, second = (list_values(comparison, variant, ordering.on) for variant in ordering.variants)
    seeds = first.keys() & second.keys()
    return sum(float(first[seed].mean()) > float(second[seed].mean()) for seed in seeds), len(seeds)


def find_margin(ordering: Ordering, comparison: Comparison) -> float:
    """Return within which two scores are equal by the plan, or two losses on longer text."""
    return comparison.plan.equal_within if ordering.on == "score" else MARGINS["loss"]


def list_values(comparison: Comparison, variant: str, on: str) -> dict[int, Float[np.ndarray, " N"]]:
    """Return the metric of every test item by seed; or one number: a loss on a longer split, its growth, a measure.

    A seed whose model refused the longer text is left out.
    """
    trials = comparison.get_trials(variant)
    if on.startswith(INSIDE):
        when, _, name = on.partition(": ")
        return {trial.seed: np.array([getattr(trial.measured, when)[name]]) for trial in trials}
    if on == "score":
        return {trial.seed: scores_N for trial, scores_N in zip(trials, score_matrix(comparison, variant), strict=True)}
    split = on.removesuffix(", growth")
    values = {}
    for trial in trials:
        longer = trial.longer[split].loss
        if longer is not None:
            values[trial.seed] = np.array([longer - (trial.scores["loss"] if on != split else 0.0)])
    return values
