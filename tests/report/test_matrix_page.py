"""The page of the matrix, its JSON, and what a reader does with it in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clockhands.report.matrix_page import dump_matrix, make_matrix_page, write_matrix
from tests.report.chromium import Browser, find
from tests.report.html_tree import Tree

DOCS = Path(__file__).resolve().parents[2] / "docs" / "conformance"
EVIL = "note </script><script>alert(1)</script> \"quoted\" 'single' <b>"
DATA: dict[str, Any] = {
    "schema": 1,
    "versions": {"transformers": EVIL, "torch": "2"},
    "verdicts": ["PASS", "FAIL", "WARN", "PROPERTY", "N/A"],
    "counts": {"PASS": 1, "FAIL": 1, "WARN": 0, "PROPERTY": 0, "N/A": 1},
    "uses": ["resume", "packing"],
    "checks": [
        {"name": "shift", "asserts": EVIL, "catches": EVIL},
        {"name": "cache.steps", "asserts": "A.", "catches": "c"},
    ],
    "causes": [
        {
            "library": True,
            "cause": EVIL,
            "checks": [EVIL],
            "models": [EVIL],
            "largest": 1.2,
            "times": None,
            "safe": EVIL,
            "thread": EVIL,
        },
    ],
    "texts": ["", EVIL, "huggingface/transformers#1"],
    "rows": [
        {
            "model": "x:causal",
            "kind": "causal",
            "scheme": EVIL,
            "fault": "",
            "rely": [1, 0],
            "cells": {"shift": [1, 1.2, 2.0, 1, 1, 1, 1, 2], "source.shift": [4, None, None, 0, 1, 0, 0, 0]},
        },
        {
            "model": "y:masked",
            "kind": "masked",
            "scheme": "RoPE",
            "fault": EVIL,
            "rely": [None, None],
            "cells": {"cache.steps": [0, 0.0, None, 0, 0, 0, 0, 0]},
        },
    ],
}


def test_hostile_text_is_text_everywhere() -> None:
    harmless = json.loads(json.dumps(DATA).replace(json.dumps(EVIL)[1:-1], "word"))
    tree, plain = Tree(make_matrix_page(DATA)), Tree(make_matrix_page(harmless))
    assert [tag for tag, _ in tree.tags] == [tag for tag, _ in plain.tags]
    assert [set(attributes) for _, attributes in tree.tags] == [set(attributes) for _, attributes in plain.tags]
    assert EVIL in tree.words["p"][1] and EVIL in tree.words["option"]


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    written, page = write_matrix(DATA, tmp_path)
    assert json.loads(written.read_text("utf8")) == DATA
    assert page.read_text("utf8") == make_matrix_page(json.loads(written.read_text("utf8")))


def test_the_matrix_in_the_documents_opens_and_is_written_as_it_was() -> None:
    """A matrix.json of an earlier version gives its page, and the same lines again."""
    text = (DOCS / "matrix.json").read_text("utf8")
    assert dump_matrix(json.loads(text)) == text
    assert (DOCS / "index.html").read_text("utf8") == make_matrix_page(json.loads(text)), (
        "run write_matrix on matrix.json"
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    binary = find()
    if binary is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the path")
    with Browser(binary) as opened:
        yield opened


def test_a_reader_filters_rows_and_opens_the_evidence(browser: Browser, tmp_path: Path) -> None:
    page = write_matrix(DATA, tmp_path)[1]
    browser.open(page, 400, dark=True)
    rows = "[...document.querySelectorAll('tbody th')].map(cell => cell.textContent)"
    assert browser.evaluate(rows) == ["x:causal", "y:masked"]
    choose = "document.querySelector('#%s').value = '%s'; document.querySelector('#%s').oninput()"
    browser.evaluate(choose % ("verdict", "1", "verdict"))
    assert browser.evaluate(rows) == ["x:causal"]
    assert browser.evaluate("document.querySelector('#count').textContent") == "1 of 2 architectures, 1 cells: fails"
    browser.evaluate("document.querySelector('td.v1 button').click()")
    told = browser.evaluate("document.querySelector('.detail').textContent")
    assert "FAIL, 1.2 std of the logits; confirmed with 2" in told and EVIL in told
    assert (
        browser.evaluate("document.querySelector('.detail a').href")
        == "https://github.com/huggingface/transformers/issues/1"
    )
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    assert browser.faults() == []
