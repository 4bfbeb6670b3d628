"""The catalogue, its documentation and its oracles name the same schemes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.schemes import CATALOGUE
from clockhands.schemes.page import page
from clockhands.schemes.picture import figure

DOCS = Path(__file__).resolve().parents[2] / "docs" / "schemes"


def test_there_is_a_page_and_a_figure_for_every_scheme_and_no_other() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"README"}
    assert pages == set(CATALOGUE), "run python docs/make_schemes.py"
    assert {path.stem for path in DOCS.glob("*.svg")} == set(CATALOGUE), "run python docs/make_schemes.py"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_tells_every_option(name: str) -> None:
    told = (DOCS / f"{name}.md").read_text("utf8")
    assert CATALOGUE[name].equation in told
    assert all(f"| `{option.name}` |" in told for option in page(name).options), "run python docs/make_schemes.py"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_figure_shows_something(name: str) -> None:
    panels = figure(name).panels
    marks = [mark for panel in panels for mark in panel.marks]
    assert marks
    assert all(value == value for mark in marks for value in mark.y)
