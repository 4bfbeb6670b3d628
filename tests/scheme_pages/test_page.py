"""The catalogue, its documentation and its oracles name the same schemes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from clockhands.scheme_pages.page import page, pages
from clockhands.scheme_pages.picture import figure
from clockhands.schemes import CATALOGUE

DOCS = Path(__file__).resolve().parents[2] / "docs" / "schemes"


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The script that writes the pages."""
    found = importlib.util.spec_from_file_location("make_schemes", DOCS.parent / "make_schemes.py")
    assert found is not None and found.loader is not None
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    return script


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
def test_a_page_is_what_the_scheme_says_today(name: str, writer: ModuleType) -> None:
    assert (DOCS / f"{name}.md").read_text("utf8") == writer.markdown(page(name)), "run python docs/make_schemes.py"


def test_the_overview_is_filtered_by_what_people_choose_by(writer: ModuleType) -> None:
    rows = [writer.row(one) for one in pages()]
    shown = (DOCS / "index.html").read_text("utf8")
    assert shown == writer.filters(rows), "run python docs/make_schemes.py"
    assert (DOCS / "README.md").read_text("utf8") == writer.overview(rows), "run python docs/make_schemes.py"
    for name in ("enters", "invariant", "extrapolates", "learned", "used by"):
        assert f'<label>{name} <select data-column="{writer.COLUMNS.index(name)}">' in shown
    by = {row[0]: dict(zip(writer.COLUMNS, row, strict=True)) for row in rows}
    assert by["learned"]["extrapolates"] == by["swin"]["extrapolates"] == "no" and by["rope"]["extrapolates"] == "yes"
    assert "BLOOM" in by["alibi"]["used by"] and "<option>BLOOM</option>" in shown


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_figure_shows_something(name: str) -> None:
    panels = figure(name).panels
    marks = [mark for panel in panels for mark in panel.marks]
    assert marks
    assert all(value == value for mark in marks for value in mark.y)
