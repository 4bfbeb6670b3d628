"""Run a study, and answer its question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clockhands.comparison import run_plan
from clockhands.findings import Findings
from clockhands.studies import STUDIES
from clockhands.studies.answer import conclude_study


def study(
    name: str,
    out: str | Path | None = None,
    *,
    seeds: int | None = None,
    scale: str = "cpu",
    text: Path | None = None,
    **running: Any,
) -> Findings:
    """Run a study, and return its answer with what was measured, as ``clockhands study`` does.

    ``out``: where results are kept (default: runs/studies/NAME); what is there is not trained again. ``running``: those
    of ``run_plan``, such as ``workers``. Raises UsageError for an unknown study, and for text that is not given.
    """
    chosen = STUDIES[name]
    chosen.text.require(None if text is None else str(text))
    plan = chosen.make_plan(seeds, scale, text)
    return conclude_study(chosen, run_plan(plan, out or Path("runs") / "studies" / name, **running))
