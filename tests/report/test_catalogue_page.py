"""The page of the catalogue: its rows, and the choices that filter them."""

from __future__ import annotations

from pathlib import Path

from docs.tools.catalogue.catalogue_page import make_catalogue_page

from tests.report.chromium import Browser
from tests.report.html_tree import Tree

EVIL = "</td><script>alert(1)</script> \"quoted\" 'single' &lt;"
COLUMNS = ("scheme", "enters", "used by")
ROWS = [("rope", "queries and keys", "Llama, Qwen2"), ("alibi", "bias", "BLOOM"), (EVIL, EVIL, EVIL)]


def test_choices_are_the_values_of_a_column_and_hostile_text_is_text() -> None:
    tree = Tree(make_catalogue_page(COLUMNS, ROWS, ("used by",)))
    assert tree.words["option"] == ["any", *sorted([EVIL, "BLOOM", "Llama", "Qwen2"])]
    assert tree.words["td"] == [cell for row in ROWS for cell in row]
    assert [link["href"] for link in tree.every("a")] == [f"{name}.md" for name, *_ in ROWS]
    assert len(tree.every("script")) == 1


def test_a_reader_filters_rows(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(make_catalogue_page(COLUMNS, ROWS, ("enters", "used by")), "utf8")
    browser.open(path, 400)
    rows = "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => row.cells[0].textContent)"
    assert len(browser.evaluate(rows)) == 3
    browser.evaluate(
        "document.querySelectorAll('select')[1].value = 'Qwen2'; document.dispatchEvent(new Event('input'))"
    )
    assert browser.evaluate(rows) == ["rope"]
    assert browser.evaluate("document.querySelector('#count').textContent") == "1 of 3"
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    assert browser.faults() == []
