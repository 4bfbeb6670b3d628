"""Which one, and is the difference real? Variants × seeds, trained alike, compared with their uncertainty.

::

    plan = read_plan("recipes/sweep.toml")                # or plan_of(recipe, vary={"position.scheme": [...]}, seeds=5)
    results = run_plan(plan, "runs/sweep", workers=2)     # goes on where it stopped
    findings = conclude(results)                          # the verdict table, curves, costs: for report.write

``compare(recipe, vary=..., out=...)`` does the three in one call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clockhands.comparison.asked import Variant
    from clockhands.comparison.execution import compare, run_plan
    from clockhands.comparison.folder import Results
    from clockhands.comparison.plan import Plan, plan_of, read_plan
    from clockhands.comparison.verdict_findings import conclude

_HOME = {
    "Plan": "plan",
    "Variant": "asked",
    "plan_of": "plan",
    "read_plan": "plan",
    "Results": "folder",
    "run_plan": "execution",
    "compare": "execution",
    "conclude": "verdict_findings",
}

__all__ = ["Plan", "Results", "Variant", "compare", "conclude", "plan_of", "read_plan", "run_plan"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'clockhands.comparison' has no attribute {name!r}")
    return getattr(importlib.import_module(f"clockhands.comparison.{_HOME[name]}"), name)
