"""The catalogue, its documentation and its oracles name the same schemes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from clockhands.scheme_pages.page import make_page, make_pages
from clockhands.schemes import CATALOGUE
from tests.schemes.oracles import ORACLES

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
    assert all(f"| `{option.name}` |" in told for option in make_page(name).options), "run python docs/make_schemes.py"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_is_what_the_scheme_says_today(name: str, writer: ModuleType) -> None:
    assert (DOCS / f"{name}.md").read_text("utf8") == writer.markdown(make_page(name)), (
        "run python docs/make_schemes.py"
    )


def test_the_overview_is_filtered_by_what_people_choose_by(writer: ModuleType) -> None:
    rows = [writer.row(one) for one in make_pages()]
    shown = (DOCS / "index.html").read_text("utf8")
    assert shown == writer.filters(rows), "run python docs/make_schemes.py"
    assert (DOCS / "README.md").read_text("utf8") == writer.overview(rows), "run python docs/make_schemes.py"
    for name in ("enters", "invariant", "extrapolates", "learned", "used by"):
        assert f'<label>{name} <select data-column="{writer.COLUMNS.index(name)}">' in shown
    by = {row[0]: dict(zip(writer.COLUMNS, row, strict=True)) for row in rows}
    assert by["learned"]["extrapolates"] == by["swin"]["extrapolates"] == "no" and by["rope"]["extrapolates"] == "yes"
    assert "BLOOM" in by["alibi"]["used by"] and "<option>BLOOM</option>" in shown


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_page_has_an_example_and_says_when_to_take_it(name: str) -> None:
    """The example is the docstring's, which tests/schemes/test_examples.py runs."""
    told, listed = (DOCS / f"{name}.md").read_text("utf8"), make_page(name)
    assert listed.example.startswith(">>> ") and listed.example in told
    assert f"{CATALOGUE[name].__name__}(" in listed.example
    assert all(f"| {variant.name} |" in told for variant in listed.variants)


def test_advice_is_what_a_study_measured_and_nothing_else(writer: ModuleType) -> None:
    page_of_study = (DOCS.parent / "studies" / "how-far.md").read_text("utf8")
    row = next(line for line in page_of_study.splitlines() if line.startswith("| rope |"))
    verdict = row.strip("| ").split(" | ")[-1]
    assert any(line.endswith(f"{verdict}. [Study](../studies/how-far.md)") for line in writer.measured("rope"))
    assert any("(rope, dynamic NTK)" in line for line in writer.measured("rope"))
    assert any("window of 2" in line for line in writer.measured("window"))
    assert writer.measured("rerope") == ["It was not measured here: no study has it among its variants."]


PARTS = {
    "what is drawn": r"^Drawn: {name}(,| with ).* with 8 heads of 32: .+\.$",
    "a formula": r"^\$\$ .+ \$\$$",
    "a drawing": r"^!\[{name}: what it does by distance and by position\]\({name}\.svg\)$",
    "who uses it": r"^- \*\*Used by\*\* \w.*$",
    "an example": r"^## Example\n\n```python\n>>> ",
    "when to take it": r"^## When to take it\n\n(- .+\[Study\]|It was not measured here|What was measured)",
    "when not": r"^## When not to take it\n\n(- |Nothing that it declares)",
    "its parity": r"^- \*\*Compared with\*\* its oracle in float64 \(`(tests/schemes/oracles/\w+\.py)`\)$",
    "its exceptions": r"^## What the laws say\n\nIt keeps every law of `tests/schemes/test_laws.py`(\.$|, except:\n)",
    "its costs": r"^- \*\*Costs\*\* \d+\.\d\d times the time of no position",
}
"""What every page has, and how it is found there."""
WITHOUT_COST = {"swin": "its window holds fewer tokens than the cost is measured with"}


@pytest.mark.parametrize("part", PARTS)
def test_every_page_has_every_part(part: str) -> None:
    without = {
        name
        for name in CATALOGUE
        if not re.search(PARTS[part].replace("{name}", name), (DOCS / f"{name}.md").read_text("utf8"), re.M)
    }
    expected = set(WITHOUT_COST) if part == "its costs" else set()
    assert without == expected, "run python docs/make_schemes.py --time NAME"


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_oracle_that_a_page_names_holds_the_schemes(name: str, writer: ModuleType) -> None:
    text = (DOCS.parents[1] / writer.find_oracle(name)).read_text("utf8")
    assert re.search(rf'^@oracle\(\s*"{name}"', text, re.M) and name in ORACLES


def test_what_was_worse_stands_under_when_not(writer: ModuleType) -> None:
    told = (DOCS / "none.md").read_text("utf8")
    take, leave = (
        told.split(heading)[1].split("\n## ")[0] for heading in ("## When to take it", "## When not to take it")
    )
    assert writer.ONLY_WORSE in take and leave.count(", worse by ") == 2
    told = (DOCS / "random.md").read_text("utf8")
    take, leave = (
        told.split(heading)[1].split("\n## ")[0] for heading in ("## When to take it", "## When not to take it")
    )
    assert ", undecided" in take and ", worse by" not in take and ", worse by" in leave
