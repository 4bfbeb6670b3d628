"""The page of the matrix, its JSON, and what a reader does with it in a browser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scripts import matrix as tool
from tests.report.chromium import Browser
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
        }
    ],
    "texts": ["", EVIL, "huggingface/transformers#1", f"You may rely on: {EVIL} yes."],
    "rows": [
        {
            "model": "x:causal",
            "kind": "causal",
            "scheme": EVIL,
            "fault": "",
            "rely": [1, 0],
            "reliance": 3,
            "cells": {"shift": [1, 1.2, 2.0, 1, 1, 1, 1, 2], "source.shift": [4, None, None, 0, 1, 0, 0, 0]},
        },
        {
            "model": "y:masked",
            "kind": "masked",
            "scheme": "RoPE",
            "fault": EVIL,
            "rely": [None, None],
            "reliance": 0,
            "cells": {"cache.steps": [0, 0.0, None, 0, 0, 0, 0, 0]},
        },
    ],
}


def test_hostile_text_is_text_everywhere() -> None:
    harmless = json.loads(json.dumps(DATA).replace(json.dumps(EVIL)[1:-1], "word"))
    tree, plain = Tree(tool.make_matrix_page(DATA)), Tree(tool.make_matrix_page(harmless))
    assert [tag for tag, _ in tree.tags] == [tag for tag, _ in plain.tags]
    assert [set(attributes) for _, attributes in tree.tags] == [set(attributes) for _, attributes in plain.tags]
    assert EVIL in tree.words["p"][1] and EVIL in tree.words["option"]


def test_equal_data_give_equal_bytes(tmp_path: Path) -> None:
    _, page = tool.write_matrix(DATA, tmp_path)
    assert tool.read_matrix(tmp_path) == DATA
    assert page.read_text("utf8") == tool.make_matrix_page(tool.read_matrix(tmp_path))


def test_the_matrix_in_the_documents_opens_and_is_written_as_it_was() -> None:
    text = gzip.decompress((DOCS / tool.MATRIX).read_bytes()).decode("utf8")
    assert tool.dump_matrix(tool.read_matrix(DOCS)) == text
    assert "llama:causal" in tool.make_matrix_page(json.loads(text))


def make_wide_matrix() -> dict[str, Any]:
    """Forty models and forty checks; three causes: one of models 0 to 9, one of model 20, one of the library."""
    names = [f"group.check{number}" for number in range(40)]
    names[38] += "_whose_name_is_longer_than_all_others"
    rows = []
    for number in range(40):
        cells = {name: [0, 0.0, None, 0, 0, 0, 0, 0] for name in names}
        if number < 10:
            cells["group.check5"] = [1, 2.0, 2.0, 0, 1, 0, 0, 0]
        if number == 20:
            cells["group.check39"] = [1, 2.0, 2.0, 0, 2, 0, 0, 0]
        if number >= 20:
            cells["group.check7"] = [5, 2.0, 2.0, 0, 3, 0, 0, 0]
        rows.append({**DATA["rows"][1], "model": f"model{number:02}:causal", "fault": "", "cells": cells})
    return {
        **DATA,
        "verdicts": [*DATA["verdicts"], "LIBRARY"],
        "counts": {**DATA["counts"], "LIBRARY": 20},
        "checks": [{"name": name, "asserts": "It holds.", "catches": "a slip"} for name in names],
        "texts": ["", "ten forget", "one forgets", "the library rounds"],
        "rows": rows,
    }


def test_rows_are_grouped_by_what_makes_them_fail() -> None:
    groups = tool.list_groups(make_wide_matrix())
    assert [(group["cause"], group["library"], len(group["cells"])) for group in groups] == [
        ("ten forget", False, 10),
        ("one forgets", False, 1),
        ("the library rounds", True, 20),
    ]
    assert groups[1]["cells"] == [("model20:causal", "group.check39")]


def test_the_worse_side_of_a_check_is_shown() -> None:
    cells = {"shift": [0], "source.shift": [1], "order": [4]}
    assert [
        tool.choose_worst(cells, name, ["PASS", "FAIL", "WARN", "PROPERTY", "N/A"]) for name in ("shift", "order", "x")
    ] == [1, 4, None]


def test_without_script_the_table_is_there_with_a_sign_for_each_verdict() -> None:
    tree = Tree(tool.make_matrix_page(make_wide_matrix()))
    cells = [cell for cell in tree.every("td") if cell.get("class", "").startswith("v")]
    assert len(cells) == 40 * 40
    signs = [word for word in tree.words["td"] if word in ("✓", "×", "○")]
    assert (signs.count("×"), signs.count("○")) == (11, 20)


def test_a_reader_filters_rows_and_opens_the_evidence(browser: Browser, tmp_path: Path) -> None:
    page = tool.write_matrix(DATA, tmp_path)[1]
    browser.open(page, 400, dark=True)
    rows = "[...document.querySelectorAll('tr[data-model] th')].map(cell => cell.textContent)"
    assert browser.evaluate(rows) == ["x:causal", "y:masked"]
    choose = "document.querySelector('#%s').value = '%s'; document.querySelector('#%s').oninput()"
    browser.evaluate(choose % ("verdict", "1", "verdict"))
    assert browser.evaluate(rows) == ["x:causal"]
    assert browser.evaluate("document.querySelector('#count').textContent") == "1 of 2 architectures, 1 cells: fails"
    browser.evaluate("document.querySelector('td.v1 button').click()")
    heads = "[...document.querySelectorAll('.matrix thead th')].map(cell => cell.textContent)"
    assert browser.evaluate(heads) == ["shift", "cache.steps"]
    told = browser.evaluate("document.querySelector('.detail').textContent")
    assert "FAIL, 1.2 std of the logits; confirmed with 2" in told and EVIL in told
    assert (
        browser.evaluate("document.querySelector('.detail a').href")
        == "https://github.com/huggingface/transformers/issues/1"
    )
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    assert browser.faults() == []


BOX = "document.querySelector('.matrix-box')"
PLACE = "(e => { const box = e.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom] })"


@pytest.mark.parametrize("width", [360, 1440])
def test_the_header_and_the_names_stay_in_sight(browser: Browser, tmp_path: Path, width: int) -> None:
    browser.open(tool.write_matrix(make_wide_matrix(), tmp_path)[1], width)
    browser.evaluate(f"{BOX}.scrollTo(400, 500)")
    left, top, *_ = browser.evaluate(f"{PLACE}({BOX})")
    header = browser.evaluate(f"{PLACE}(document.querySelector('.matrix thead th'))")
    name = browser.evaluate(f"{PLACE}(document.querySelectorAll('tr[data-model] th')[25])")
    assert abs(header[1] - top) <= 2 and abs(name[0] - left) <= 2
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 1440])
def test_a_link_to_a_cell_marks_it_under_its_cause_and_brings_it_into_sight(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    page = tool.write_matrix(make_wide_matrix(), tmp_path)[1]
    browser.open(page, width)
    browser.evaluate("location.hash = 'model20:causal/group.check39'")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    browser.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    told = browser.evaluate(
        """(() => { const cell = document.querySelector('.marked'), box = cell.getBoundingClientRect();
        const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return [document.querySelectorAll('.marked').length, cell.closest('tr').dataset.model, cell.dataset.check,
          cell.closest('tbody').dataset.cause, cell.contains(top),
          box.top >= document.querySelector('.matrix thead').getBoundingClientRect().bottom
            && box.top >= document.querySelector('.matrix thead th').getBoundingClientRect().bottom] })()"""
    )
    assert told == [1, "model20:causal", "group.check39", "one forgets", True, True]


def test_only_the_models_own_faults(browser: Browser, tmp_path: Path) -> None:
    browser.open(tool.write_matrix(make_wide_matrix(), tmp_path)[1], 1440)
    causes = "[...document.querySelectorAll('.matrix tbody')].map(body => body.dataset.cause)"
    nothing = "Nothing fails in what is shown"
    assert browser.evaluate(causes) == ["ten forget", "one forgets", "the library rounds", nothing]
    browser.evaluate("document.querySelector('#own').click()")
    assert browser.evaluate(causes) == ["ten forget", "one forgets"]
    assert browser.evaluate("document.querySelectorAll('tr[data-model]').length") == 11
    assert browser.evaluate("document.querySelector('#count').textContent") == "11 of 40 architectures"
    browser.evaluate("document.querySelector('#order').value = 'model'; document.querySelector('#order').oninput()")
    assert browser.evaluate("document.querySelectorAll('.matrix tbody').length") == 1


def test_data_that_tell_no_library_apart_have_no_such_filter() -> None:
    assert 'id="own"' not in tool.make_matrix_page(DATA)


def test_arrow_keys_go_from_cell_to_cell(browser: Browser, tmp_path: Path) -> None:
    browser.open(tool.write_matrix(make_wide_matrix(), tmp_path)[1], 1440)
    browser.evaluate("document.querySelector('.matrix tbody button[tabindex=\"0\"]').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        browser.evaluate(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')") == "model01:causal group.check1: PASS"
