"""What people see of findings: figures, one self-contained page, files, lines in the terminal.

``make_page`` makes the HTML, ``write`` the folder, ``show`` prints to the terminal; ``put_side_by_side`` makes one set
of findings of two. ``draw`` (one figure as SVG) is in ``clockhands.report.figures``, which imports Matplotlib.
"""

from __future__ import annotations

from clockhands.findings import set_html_renderer
from clockhands.report.page import make_notebook_frame, make_page
from clockhands.report.side_by_side import put_side_by_side
from clockhands.report.write import show, write

set_html_renderer(make_notebook_frame)

__all__ = ["make_notebook_frame", "make_page", "put_side_by_side", "show", "write"]
