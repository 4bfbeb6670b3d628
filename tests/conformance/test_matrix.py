"""The matrix as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome
from tests.conformance.scripts import faults
from tests.conformance.scripts import matrix as matrices


def make_matrix(results: list[Result]) -> dict[str, Any]:
    return matrices.matrix(results, "code")


def test_the_matrix_says_what_was_found() -> None:
    outcome = Outcome("shift", "FAIL", 1.23456, 2.0, "note", "", "safe", "cause", "a.py:3", "o/r#1")
    result = Result("x:causal", "causal", "RoPE", (outcome, Outcome("source.shift", "N/A", reason="why")))
    data = make_matrix([result, Result("broken:causal", "causal", "", (), fault="cannot be built")])
    verdict, size, again, *texts = data["rows"][0]["cells"]["shift"]
    assert (data["verdicts"][verdict], size, again) == ("FAIL", 1.2, 2.0)
    assert [data["texts"][i] for i in texts] == ["note", "cause", "safe", "a.py:3", "o/r#1"]
    assert data["rows"][1]["fault"] == "cannot be built"
    assert data["counts"]["FAIL"] == data["counts"]["N/A"] == 1


def test_a_verdict_that_a_known_fault_changed_says_so_in_the_matrix() -> None:
    outcome = Outcome("shift", "WARN", 1.0, cause="why", measured="FAIL", known="entry")
    data = make_matrix([Result("x:causal", "causal", "RoPE", (outcome,))])
    explanation = data["texts"][data["rows"][0]["cells"]["shift"][4]]
    assert explanation == "FAIL -> WARN: known fault entry of the library: why"


def test_causes_have_their_models_and_those_of_the_library_stand_first() -> None:
    def gaps(size: float) -> Outcome:
        return Outcome("packing.gaps", "LIBRARY", size, cause="gaps", thread="o/r#1", floor=0.5)

    own = [Outcome(name, "FAIL", 1.0, cause="own") for name in ("shift", "cache.steps")]
    found = [Result(name, "causal", "", (gaps(size), *own)) for name, size in (("a", 1.0), ("b", 3.0))]
    found.append(Result("c", "causal", "", (own[0], Outcome("cache.chunks", "FAIL", float("inf"), reason="raised"))))
    first, *rest = make_matrix(found)["causes"]
    assert (first["library"], first["models"], first["largest"], first["times"]) == (True, ["a", "b"], 3.0, 6.0)
    assert first["thread"] == "o/r#1"
    assert [(each["cause"], each["models"], each["checks"]) for each in rest] == [
        ("own", ["a", "b", "c"], ["shift", "cache.steps"]),
        ("raised", ["c"], ["cache.chunks"]),
    ]


def test_a_row_says_what_may_be_relied_on() -> None:
    outcomes = (Outcome("load.round_trip", "PASS", 0.0), Outcome("shift", "PASS", 0.0))
    data = make_matrix([Result("x:causal", "causal", "RoPE", outcomes)])
    assert data["texts"][data["rows"][0]["reliance"]] == "You may rely on: moved positions yes."


def test_the_page_of_causes_is_that_of_the_matrix_and_every_cause_has_its_defect() -> None:
    page = faults.make_page(matrices.read_matrix(faults.FOLDER))
    assert faults.PAGE.read_text("utf8") == page, "python docs/tools/conformance/faults.py"
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| cause")]
    assert [row for row in rows if "](defects/" not in row] == []


def test_the_page_counts_cells_and_builds_of_each_cause() -> None:
    own, shared = (
        Outcome(name, verdict, 1.0, cause=verdict, where="modeling_bamba.py:971", floor=0.5)
        for name, verdict in (("shift", "FAIL"), ("packing.gaps", "LIBRARY"))
    )
    rows = [Result("a:causal", "causal", "", (own, replace(own, check="cache.steps"), shared), {"transformers": "1"})]
    page = faults.make_page(make_matrix([*rows, replace(rows[0], model="qwen2_vl:causal")]))
    told = "2 fail by the\nown code of their models, in 4 cells: 1 of them read text alone"
    assert "Of the 2 builds" in page and told in page
    assert "| FAIL | a:causal, qwen2_vl:causal | 4 | [bamba-offset](defects/bamba-offset.md) |" in page
    assert "| LIBRARY | a:causal, qwen2_vl:causal | 2 | 2 |  | [bamba-offset]" in page
