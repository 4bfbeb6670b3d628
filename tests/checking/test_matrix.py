"""The matrix as plain data."""

from __future__ import annotations

from clockhands.checking.matrix import matrix
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome


def test_the_matrix_says_what_was_found() -> None:
    outcome = Outcome("shift", "FAIL", 1.23456, 2.0, "note", "", "safe", "cause", "a.py:3", "o/r#1")
    result = Result("x:causal", "causal", "RoPE", (outcome, Outcome("source.shift", "N/A", reason="why")))
    data = matrix([result, Result("broken:causal", "causal", "", (), fault="cannot be built")])
    verdict, size, again, *texts = data["rows"][0]["cells"]["shift"]
    assert (data["verdicts"][verdict], size, again) == ("FAIL", 1.2, 2.0)
    assert [data["texts"][i] for i in texts] == ["note", "cause", "safe", "a.py:3", "o/r#1"]
    assert data["rows"][1]["fault"] == "cannot be built"
    assert data["counts"]["FAIL"] == data["counts"]["N/A"] == 1


def test_a_verdict_that_a_known_fault_changed_says_so_in_the_matrix() -> None:
    outcome = Outcome("shift", "WARN", 1.0, cause="why", measured="FAIL", known="entry")
    data = matrix([Result("x:causal", "causal", "RoPE", (outcome,))])
    explanation = data["texts"][data["rows"][0]["cells"]["shift"][4]]
    assert explanation == "FAIL -> WARN: known fault entry of the library: why"
