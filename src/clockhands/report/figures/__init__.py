"""Figures of findings, drawn with Matplotlib as SVG. Importing this package imports Matplotlib."""

from __future__ import annotations

from clockhands.report.figures.draw import draw, draw_preview
from clockhands.report.figures.svg import make_file

__all__ = ["draw", "draw_preview", "make_file"]
