"""The page of live models: what matters as text, the models as data, and the script that runs them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from clockhands.findings import Findings
from clockhands.report.render import make_policy, render
from clockhands.report.tables import view_table

__all__ = ["make_explorer_page"]


def make_explorer_page(
    findings: Findings,
    answers: Sequence[tuple[str, str, str]],
    data: Mapping[str, Any],
    weights: Mapping[str, bytes],
    *,
    answers_at: str = "",
    script: str,
    style: str,
) -> str:
    """Return the page.

    ``findings`` and ``answers`` (name, question and answer of each) stand in it as text and tables, for readers without
    script too; ``data`` is what the script reads, and ``weights`` are bytes by the id of the element that holds them in
    base64. ``answers_at``: the folder of the answers' pages, seen from this one; empty where there is none.
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
        answers_at=answers_at,
        tables=[view_table(finding.table) for finding in findings],
        explorer_data=data,
        weights={name: base64.b64encode(numbers).decode("ascii") for name, numbers in weights.items()},
        script="",
    )
