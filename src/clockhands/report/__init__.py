"""Findings -> what people see: figures, one self-contained page, files, the terminal.

``page`` makes the HTML, ``write`` the folder, ``show`` the lines in the terminal, ``side_by_side`` one set of findings
of two. ``draw`` (one figure as SVG) is in ``clockhands.report.figures``, which imports Matplotlib.
"""

from __future__ import annotations

from clockhands.findings import set_html_renderer
from clockhands.report.notebook import notebook
from clockhands.report.page import page
from clockhands.report.side_by_side import side_by_side
from clockhands.report.terminal import show
from clockhands.report.write import write

set_html_renderer(notebook)

__all__ = ["notebook", "page", "show", "side_by_side", "write"]
