"""Run a study, and answer its question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clockhands.comparison import run_plan
from clockhands.findings import Findings
from clockhands.options import check_call
from clockhands.studies import STUDIES
from clockhands.studies.answer import conclude_study


def study(
    name: str,
    out: str | Path | None = None,
    *,
    seeds: int | None = None,
    scale: str = "cpu",
    text: str | Path | None = None,
    **running: Any,
) -> Findings:
    """Run a study, and return its answer with what was measured, as ``clockhands study`` does.

    Args:
        name: of ``STUDIES``; ``clockhands study`` lists them.
        out: where results are kept (default: runs/studies/NAME); what is there is not trained again.
        seeds: how many (default: as many as the study plans).
        scale: the size of its models and trainings: ``"cpu"``, or a larger one that it names.
        text: the file or folder of text that a study of real text needs.
        running: arguments of ``run_plan``, such as ``workers``.

    Raises UsageError for an unknown study, and for text that is not given.
    """
    chosen = STUDIES[name]
    chosen.text.require(None if text is None else str(text))
    plan = chosen.make_plan(seeds, scale, None if text is None else Path(text))
    return conclude_study(chosen, check_call(run_plan)(plan, out or Path("runs") / "studies" / name, **running))
