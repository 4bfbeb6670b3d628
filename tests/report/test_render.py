"""The templates: everything is escaped, nothing is asked for, and only the page's own script may run."""

from __future__ import annotations

import base64
import hashlib
import json

import jinja2
import pytest
from docs.tools.catalogue.catalogue_page import make_catalogue_page
from hypothesis import given
from hypothesis import strategies as st

from clockhands.findings import Finding, Findings
from clockhands.report import make_page
from clockhands.report.render import make_policy, render
from tests.conformance.scripts import matrix
from tests.report.html_tree import Tree
from tests.report.test_matrix_page import DATA

PAGES = {
    "catalogue": make_catalogue_page(("scheme",), [("rope",)], ("scheme",)),
    "matrix": matrix.make_matrix_page(DATA),
}


@given(st.text())
def test_text_is_read_back_as_itself(text: str) -> None:
    """An HTML parser reads exactly the visible characters, and never a tag."""
    tree = Tree(make_catalogue_page(("scheme",), [("name", text)], ()))
    (name, *_), cell = tree.words["td"][0:1], tree.words["td"][1]
    assert name == "name" and [tag for tag, _ in tree.tags].count("td") == 2
    plain = "".join(character for character in text if character.isprintable() and not 0x80 <= ord(character) < 0xA0)
    assert "".join(character for character in cell if character in plain) == plain
    cell.encode("utf8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_with_a_script_names_it_by_its_hash_and_asks_for_nothing(name: str) -> None:
    tree = Tree(PAGES[name])
    (program,) = [words for tag, words in zip(tree.every("script"), tree.words["script"], strict=True) if not tag]
    allowed = next(meta["content"] for meta in tree.every("meta") if "http-equiv" in meta)
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    assert allowed.startswith("default-src 'none';") and f"script-src 'sha256-{digest}'" in allowed
    assert not {"iframe", "object", "img"} & {tag for tag, _ in tree.tags}
    asked = [
        value
        for tag, attributes in tree.tags
        if tag != "a"
        for key, value in attributes.items()
        if key in ("src", "href")
    ]
    assert asked == ["data:,"]
    assert not any(key.startswith("on") for _, attributes in tree.tags for key in attributes)


def test_all_pages_have_one_style_sheet() -> None:
    sheets = {Tree(text).words["style"][0] for text in PAGES.values()}
    assert len(sheets) == 1


def test_a_page_without_a_script_allows_none() -> None:
    assert "script-src" not in make_policy() and make_policy().startswith("default-src 'none'")


def test_a_value_that_is_missing_is_no_empty_text() -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render("notebook.html", page="")


def test_prose_makes_paragraphs_code_and_links_and_nothing_else() -> None:
    def prose(text: str) -> str:
        finding = Finding("f", "Q?", "V.", method=text)
        fold = make_page(Findings("t", (finding,))).split('<div class="fold">')[1]
        return fold.split("</div>")[0].strip()

    assert prose("one\n\ntwo `a < b`") == "<p>one</p><p>two <code>a &lt; b</code></p>"
    assert 'href="https://example.org/a?b=1"' in prose("see https://example.org/a?b=1.")
    assert 'href="https://arxiv.org/abs/2104.09864"' in prose("arXiv:2104.09864, eq. 3")
    assert "<a" not in prose("javascript:alert(1) http://plain.example")
    assert "<script" not in prose("`<script>` https://x.example/<script>")


def test_the_data_of_a_page_is_read_back_as_it_was() -> None:
    tree = Tree(PAGES["matrix"])
    (data,) = [words for tag, words in zip(tree.every("script"), tree.words["script"], strict=True) if tag]
    read = json.loads(data)
    assert {key: read[key] for key in DATA} == DATA
