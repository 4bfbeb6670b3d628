"""Findings inside a notebook: the page in a frame of its own, so that neither's style reaches the other."""

from __future__ import annotations

from clockhands.findings import Findings
from clockhands.report.page import page
from clockhands.report.text import escape


def notebook(findings: Findings) -> str:
    """An ``<iframe>`` that carries the whole page; scripts are not allowed in it."""
    frame = "width:100%;height:min(80vh,900px);border:1px solid #8884;border-radius:4px"
    sandbox = "allow-downloads allow-popups allow-same-origin"
    content = escape(page(findings), lines=True)
    return f'<iframe title="{escape(findings.title)}" sandbox="{sandbox}" style="{frame}" srcdoc="{content}"></iframe>'
