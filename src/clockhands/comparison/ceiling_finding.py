"""How much of a comparison's task can be done without order: a finding beside its verdicts."""

from __future__ import annotations

from collections.abc import Mapping

from clockhands.comparison.plan import Plan
from clockhands.comparison.trial_runner import load_material
from clockhands.data import Ceiling
from clockhands.findings import Finding


def find_plan_ceiling(plan: Plan) -> Ceiling:
    """Return the order-blind ceiling of the task of the baseline."""
    return load_material(plan.get_recipe(plan.baseline, plan.seeds[0])).find_ceiling()


def describe_ceiling(ceiling: Ceiling, despite: Mapping[str, str] | None = None) -> Finding:
    """Return the ceiling as a finding, with the reasons why the task is used ``despite`` something."""
    return Finding(
        name="compare.ceiling",
        question="Can the task be done without order?",
        verdict=" ".join([ceiling.sentence, *(despite or {}).values()]),
        value=100 * ceiling.share,
        unit="%",
        interval=None if ceiling.low == ceiling.high else (100 * ceiling.low, 100 * ceiling.high),
        method=(
            "All sources with the same bag of tokens get one answer, the one that is right most often; the share that "
            "is then right, over the population from which the corpus draws."
        ),
    )
