"""The page of live models: what matters as text, the models as data, and the script that runs them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clockhands.findings import Findings
from clockhands.report.render import make_policy, render
from clockhands.report.tables import view_table
from clockhands.studies.measured import MeasuredAnswer

__all__ = ["make_explorer_page"]


def make_explorer_page(
    findings: Findings,
    answers: Sequence[MeasuredAnswer],
    data: Mapping[str, Any],
    weights: Mapping[str, bytes],
    *,
    shorts: Mapping[str, str],
    script: str,
    style: str,
) -> str:
    """Return the page.

    ``findings`` and ``answers`` stand in it as text and tables, for readers without script too, and above an answer its
    one sentence of ``shorts``, by its name; ``data`` is what the script reads, and ``weights`` are bytes by the id of
    the element that holds them in base64.
    """
    program = script.replace("</", "<\\/")
    return render(
        "explorer.html",
        title=findings.title,
        policy=make_policy(program, workers=True),
        style=Markup(style.replace("</", "<\\/")),
        program=Markup(program),
        findings=findings,
        answers=answers,
        shorts={answer.name: shorts.get(answer.name, "") for answer in answers},
        tables=[view_table(finding.table) for finding in findings],
        explorer_data=data,
        weights={name: base64.b64encode(numbers).decode("ascii") for name, numbers in weights.items()},
        script="",
    )
