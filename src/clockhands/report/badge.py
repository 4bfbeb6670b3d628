"""A badge for a README: a small SVG with a label and a message, which asks for nothing."""

from __future__ import annotations

from clockhands.findings import Light
from clockhands.report.render import render

# White text on each of them has a contrast of 4.5 at least.
_COLOURS: dict[Light, str] = {
    "good": "#2a7a35",
    "warn": "#8a5a00",
    "bad": "#b3261e",
    "info": "#2563a8",
    "skip": "#666666",
}
_PIXELS = 6.6  # the mean width of a character of Verdana at 11 pixels; textLength makes up for the rest


def make_badge(label: str, message: str, light: Light, title: str) -> str:
    """Return the SVG; ``title`` is what a reader sees who rests on it."""
    border, rest = (round(len(text) * _PIXELS) + 12 for text in (label, message))
    values = {"label": label, "message": message, "title": title, "colour": _COLOURS[light]}
    return render("badge.svg", width=border + rest, border=border, **values)
