"""Contrast of every colour, computed from the style sheet and the palette: text 4.5 to 1, marks 3 to 1 (WCAG 2.2)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from clockhands.report.figures import palette
from tests.report.contrast import contrast as measure
from tests.report.contrast import parse_colour

SHEET = files("clockhands.report").joinpath("templates", "style.css").read_text("utf8")
LIGHT, CHANGED = (
    dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", SHEET, re.S)
)
MODES = {"light": LIGHT, "dark": {**LIGHT, **CHANGED}}
TEXTS = [
    *((text, ground) for text in ("ink", "soft", "link", "good", "warn", "bad", "info", "skip")
      for ground in ("paper", "card", "wash")),
    ("good", "pass-fill"), ("on-fail", "fail-fill"), ("ink", "warn-fill"), ("ink", "property-fill"),
    ("soft", "none-fill"), ("ink", "library-fill"),
]  # fmt: skip
"""Which colour text has on which ground."""


def contrast(colour: str, other: str) -> float:
    return measure(parse_colour(colour), parse_colour(other))


def test_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", MODES)
def test_text_is_read_on_every_ground(mode: str) -> None:
    colours = MODES[mode]
    low = {pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXTS}
    assert {pair: round(value, 2) for pair, value in low.items() if value < 4.5} == {}


@pytest.mark.parametrize("mode", MODES)
def test_the_marks_of_a_card_are_seen(mode: str) -> None:
    colours = MODES[mode]
    assert min(contrast(colours[name], colours["card"]) for name in ("link", "soft", "mark")) >= 3


@pytest.mark.parametrize("mode", MODES)
def test_the_marks_of_figures_are_seen(mode: str) -> None:
    shown = palette.DARK if mode == "dark" else {}
    paper = MODES[mode]["paper"]
    assert shown.get(palette.PAPER, palette.PAPER) == paper, "a hollow mark is filled with the page's own paper"
    marks = [*palette.SERIES, *palette.RAMP, palette.GREY]
    assert {c: contrast(shown.get(c, c), paper) for c in marks if contrast(shown.get(c, c), paper) < 3} == {}
    texts = [shown.get(colour, colour) for colour in (palette.INK, palette.FAINT)]
    assert min(contrast(colour, paper) for colour in texts) >= 4.5
