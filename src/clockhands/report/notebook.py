"""Findings inside a notebook: the page in a frame of its own, so that neither's style reaches the other."""

from __future__ import annotations

from clockhands.findings import Findings
from clockhands.report.page import make_page
from clockhands.report.render import render


def make_notebook_frame(findings: Findings) -> str:
    """Return an ``<iframe>`` that carries the whole page; scripts are not allowed in it."""
    return render("notebook.html", title=findings.title, page=make_page(findings, script=False))
