"""The verdict is made in one place, and a known fault that changes it is told."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import clockhands.checking
from clockhands.checking import examine
from clockhands.checking.checks.check import CHECKS, Check, Measurement
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.subject import Subject
from clockhands.checking.outcome_words import sentence
from clockhands.checking.verdict.judge import judge
from clockhands.checking.verdict.measure import Evidence
from tests.checking.checks import planted
from tests.checking.checks.test_planted import adapter

ROOT = Path(clockhands.checking.__path__[0])


def test_a_known_fault_that_changes_the_verdict_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = examine("deepseek_v4:causal", tiny=True, only=["config.theta", "cache.steps"])
    same, changed = sorted(result.outcomes, key=lambda outcome: outcome.measured)
    assert (same.check, same.measured, same.change) == ("cache.steps", "", "")
    assert (changed.measured, changed.verdict, changed.known) == ("FAIL", "WARN", "deepseek-v4-config")
    assert changed.change.startswith("FAIL -> WARN: known fault deepseek-v4-config of the library")
    assert f"{changed.change}: {changed.cause} (" in sentence(changed)


def test_a_check_of_packing_under_a_mask_follows_packing_by_positions() -> None:
    """No cause of its own is looked for where documents are not told apart in any case."""
    (result,) = examine("opt:causal", tiny=True, only=["packing.positions", "packing.mask"])
    leader, follower = result.outcomes
    assert (leader.verdict, leader.measured) == ("LIBRARY", "FAIL") and leader.known
    assert follower.known == "" and follower.reason == "documents are not told apart, with or without it"
    assert follower.safe == ""  # packing.block_mask was not checked


def test_only_the_judge_makes_outcomes() -> None:
    """``result.py`` reads them from JSON; every other module may only add what is no verdict."""
    makers = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                sets_verdict = any(keyword.arg == "verdict" for keyword in node.keywords)
                if node.func.id == "Outcome" or (node.func.id == "replace" and sets_verdict):
                    makers.add(path.relative_to(ROOT).as_posix())
    assert makers == {"verdict/judge.py", "result.py"}


def test_evidence_gives_its_numbers() -> None:
    first, again = Measurement(0.5, "at 3"), Measurement(0.25)
    assert Evidence(inapplicable="why").numbers() == {}
    alone = {"size": 0.5, "confirmed": None, "note": "at 3", "floor": None, "tokens": None}
    assert Evidence(first=first).numbers() == alone
    assert Evidence(first=first, repeated=again).numbers() == {**alone, "confirmed": 0.25}


def test_what_is_raised_on_valid_input_is_a_failure_unless_it_need_not_be_offered() -> None:
    def raising(subject: Subject) -> Measurement:
        raise IndexError("index out of range")

    (subject,) = from_model(adapter(planted.Correct))
    for refusable, verdict in ((False, "FAIL"), (True, "WARN")):
        outcome = judge(subject, Check("law", "a", "c", raising, refusable=refusable), "", {})
        assert (outcome.verdict, outcome.reason) == (verdict, "raised IndexError: index out of range")


def test_a_failure_of_shared_code_has_the_rounding_of_its_precision_beside_it() -> None:
    (result,) = examine("llama:causal", tiny=True, only=["precision.to", "packing.gaps"])
    low, full = result.outcomes
    assert (low.verdict, full.verdict) == ("LIBRARY", "LIBRARY") and not result.failed_itself and result.failed
    assert low.floor is not None and full.floor is not None and full.size is not None
    assert 0.01 < low.floor < 2, "bfloat16 has eight bits"
    assert 1e-8 < full.floor < 1e-4 < 100 * full.floor < full.size, "float32 has 24"


def test_a_table_of_the_models_own_is_its_own_fault() -> None:
    """Of the same kind as that of the library, and in code of the author's."""
    (subject,) = from_model(adapter(planted.TableFollowsTheCast))
    outcome = judge(subject, CHECKS["precision.to"], "TableFollowsTheCast", {})
    assert (outcome.verdict, outcome.known) == ("FAIL", "")


@pytest.mark.parametrize(
    ("sizes", "verdict", "reason"),
    [
        ((0.5, 0.0, 0.0), "WARN", "depends on what ran before"),
        ((0.5, 0.0, 0.5), "WARN", "rounding decides a choice"),
        ((0.05, 0.0), "PASS", "vanishes in float64: rounding, or a tie"),
        ((0.5, 0.5), "FAIL", ""),
    ],
)
def test_a_large_difference_that_vanishes_is_never_a_pass(sizes: tuple[float, ...], verdict: str, reason: str) -> None:
    (subject,) = from_model(adapter(planted.Correct))
    given = iter(sizes)
    outcome = judge(subject, Check("law", "a", "c", lambda subject: Measurement(next(given))), "", {})
    assert outcome.verdict == verdict and reason in outcome.reason
    assert bool(outcome.reason) == bool(reason)
