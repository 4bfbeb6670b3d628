"""Whether the task of a study can tell models apart: what is refused unless the plan says why."""

from __future__ import annotations

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.learning import score_matrix
from clockhands.comparison.plan import METRICS
from clockhands.comparison.task_findings import find_plan_ceiling, list_above
from clockhands.comparison.trial_runner import make_material_key
from clockhands.data import Ceiling
from clockhands.data.bounds import Floor
from clockhands.errors import ClockhandsError, UsageError
from clockhands.studies.study import Study

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
