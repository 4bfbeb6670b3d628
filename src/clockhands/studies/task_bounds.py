"""What a study's task allows a model without order to reach, for the texts that tell of it."""

from __future__ import annotations

from clockhands.comparison import Comparison, Plan
from clockhands.comparison.cost import make_material_key
from clockhands.comparison.task_findings import describe_ceiling, find_plan_ceiling
from clockhands.comparison.trial_runner import load_material
from clockhands.data import Ceiling
from clockhands.studies.study import Study

_CEILINGS: dict[str, Ceiling] = {}


def find_ceiling_once(plan: Plan) -> Ceiling:
    """Return the order-blind ceiling of a plan's task, which takes seconds and is asked for in many texts."""
    key = make_material_key(plan.get_recipe(plan.baseline, plan.seeds[0]))
    if key not in _CEILINGS:
        _CEILINGS[key] = find_plan_ceiling(plan)
    return _CEILINGS[key]


def describe_order_blind(study: Study, plan: Plan) -> str:
    """Return whether the task can be done without order: the ceiling, or why it says nothing of this task.

    Where it says nothing it is not computed: the text may not be on this machine, or be another on another machine.
    """
    reason = (plan.despite or study.despite).get("ceiling")
    if reason is not None:
        return reason
    sentence = describe_ceiling(find_ceiling_once(plan)).verdict
    return f"{sentence} No model of this study is scored." if study.unscored else sentence


def count_vocabulary(comparison: Comparison) -> int:
    """Return how many tokens the baseline's tokenizer of sources has."""
    plan = comparison.plan
    return len(load_material(plan.get_recipe(plan.baseline, plan.seeds[0])).tokenizers.source)
