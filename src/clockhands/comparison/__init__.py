"""Which variant is better, and is the difference real? Variants × seeds, trained alike, compared with uncertainty.

::

    plan = read_plan("recipes/sweep.toml")                # or make_plan(recipe, vary={"position.scheme": [...]})
    comparison = run_plan(plan, "runs/sweep", workers=2)  # goes on where it stopped
    findings = conclude(comparison)                       # verdicts, curves, costs: for report.write

``compare(recipe, vary=..., out=...)`` does the three in one call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.comparison.execution import compare, run_plan
    from clockhands.comparison.findings import conclude
    from clockhands.comparison.plan import Plan, Variant, make_plan, read_plan
    from clockhands.comparison.results import Comparison, read_comparison
    from clockhands.comparison.trial import Trial
    from clockhands.comparison.verdicts import Verdict, judge

_HOME = {
    "Comparison": "results",
    "Plan": "plan",
    "Trial": "trial",
    "Variant": "plan",
    "Verdict": "verdicts",
    "compare": "execution",
    "conclude": "findings",
    "judge": "verdicts",
    "make_plan": "plan",
    "read_comparison": "results",
    "read_plan": "plan",
    "run_plan": "execution",
}

__all__ = [
    "Comparison", "Plan", "Trial", "Variant", "Verdict", "compare", "conclude", "judge", "make_plan",
    "read_comparison", "read_plan", "run_plan",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clockhands.comparison' has no attribute {name!r}")
    return getattr(importlib.import_module(f"clockhands.comparison.{_HOME[name]}"), name)
