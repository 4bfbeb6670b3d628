"""Whether the task of a study can tell models apart, and how its trials agree with what the literature reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.learning import find_groups, find_top, score_matrix
from clockhands.comparison.plan import MARGINS, METRICS
from clockhands.comparison.statistics.paired import MIN_SEEDS, PairedDifference, estimate_difference
from clockhands.comparison.task_findings import find_plan_ceiling, list_above
from clockhands.comparison.trial_runner import make_material_key
from clockhands.data import Ceiling
from clockhands.data.bounds import Floor
from clockhands.errors import ClockhandsError, ConfigError, UsageError
from clockhands.findings.finding import join_words
from clockhands.shapes import Float
from clockhands.studies.study import Ordering, Study

MOST_BLIND = 60.0
"""Percent that a model without order may get right at most: above it the task hardly needs order."""
MOST_BASELINE = 98.0
"""Percent that the baseline may get right: above it no model can be better, and equal scores say nothing."""


def check_ceiling(study: Study, ceiling: Ceiling, plan: Plan | None = None) -> None:
    """Raise UsageError for a task of which too much can be done without order, unless the plan says why.

    ``plan``: that of another size of the study, which may have reasons of its own.

    A study whose models are trained too little to be scored is not judged by its task.
    """
    share = 100 * ceiling.share
    if share <= MOST_BLIND or study.unscored or "ceiling" in _list_reasons(study, plan):
        return
    raise UsageError(
        f"the study {study.name} is refused: {share:.1f} % of its items can be got right without word order, more than "
        f"{MOST_BLIND:.0f} %, so that its scores say little about order ({ceiling.population}); take a harder task or "
        'another tokenizer, or say why in its plan: despite = { ceiling = "..." }'
    )


def _list_reasons(study: Study, plan: Plan | None) -> tuple[str, ...]:
    """Return what of a task a reason is given for: in this plan, which may be a size's, else in the study's file."""
    return tuple((plan.despite if plan is not None else None) or study.despite)


def check_baseline(study: Study, comparison: Comparison) -> None:
    """Raise ClockhandsError where the baseline gets nearly everything right, unless the plan says why.

    Only shares can: a loss has no end, and a study whose models are trained too little has no scores.
    """
    plan, scores_SN = comparison.plan, score_matrix(comparison, comparison.plan.baseline)
    if plan.metric == "loss" or study.unscored or "baseline" in _list_reasons(study, plan) or not scores_SN.size:
        return
    score = float(scores_SN.mean())
    if score > MOST_BASELINE:
        raise ClockhandsError(
            f"the study {study.name} gives no answer: its baseline {plan.baseline!r} has {score:.1f} "
            f"({METRICS[plan.metric]}), more than {MOST_BASELINE:.0f}, so that nothing can be better and equal scores "
            "say nothing; its trials are kept. "
            'Take a harder task or fewer steps, or say why in its plan: despite = { baseline = "..." }'
        )


def makes_claim_about_length(study: Study) -> bool:
    """Return whether the study says something of text longer than in training."""
    drawn = (study.figure or {}).get("along") == "lengths"
    return drawn or "[[longer:" in study.answer or any(ordering.on != "score" for ordering in study.orderings)


def check_floor(study: Study, comparison: Comparison, floor: Floor | None) -> None:
    """Raise ClockhandsError where length is claimed and the baseline is above the floor, unless the plan says why.

    Made text has no floor.
    """
    if floor is None or not makes_claim_about_length(study) or "floor" in _list_reasons(study, comparison.plan):
        return
    baseline = comparison.plan.baseline
    loss = list_above(floor, comparison).get(baseline)
    if loss is not None:
        raise ClockhandsError(
            f"the study {study.name} gives no answer about length: its baseline {baseline!r} has {loss:.2f} nats per "
            f"token. {floor.sentence} Its trials are kept. Train longer or a larger model, or say why in its plan: "
            'despite = { floor = "..." }'
        )


_CEILINGS: dict[str, Ceiling] = {}


def find_ceiling_once(plan: Plan) -> Ceiling:
    """Return the order-blind ceiling of a plan's task, which takes seconds and is asked for in many texts."""
    key = make_material_key(plan.get_recipe(plan.baseline, plan.seeds[0]))
    if key not in _CEILINGS:
        _CEILINGS[key] = find_plan_ceiling(plan)
    return _CEILINGS[key]


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


def estimate_gap(ordering: Ordering, comparison: Comparison, comparisons: int) -> PairedDifference | int:
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
