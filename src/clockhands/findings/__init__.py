"""Findings: what every measurement returns, as plain data from which pages are drawn. They know nothing of models."""

from clockhands.findings.figure import (
    Figure,
    Mark,
    Number,
    Panel,
    Scalar,
    draw_columns,
    draw_heatmap,
    draw_seeds,
    make_heatmap,
    make_mark,
    make_reference_line,
    put_together,
)
from clockhands.findings.finding import SCHEMA, SHARE, Finding, Findings, Light, Reference, Table, set_html_renderer
from clockhands.findings.text import choose_digits, join_words

__all__ = [
    "SCHEMA",
    "SHARE",
    "Figure",
    "Finding",
    "Findings",
    "Light",
    "Mark",
    "Number",
    "Panel",
    "Reference",
    "Scalar",
    "Table",
    "choose_digits",
    "draw_columns",
    "draw_heatmap",
    "draw_seeds",
    "join_words",
    "make_heatmap",
    "make_mark",
    "make_reference_line",
    "put_together",
    "set_html_renderer",
]
