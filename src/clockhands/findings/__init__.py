"""Findings: what every measurement returns, as plain data from which pages are drawn. They know nothing of models."""

from clockhands.findings.drawing import draw_columns, make_heatmap, make_mark, make_reference_line
from clockhands.findings.figure import Figure, Mark, Number, Panel, Scalar
from clockhands.findings.finding import (
    SCHEMA,
    SHARE,
    Finding,
    Findings,
    Light,
    Reference,
    Table,
    set_html_renderer,
)
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
    "join_words",
    "make_heatmap",
    "make_mark",
    "make_reference_line",
    "set_html_renderer",
]
