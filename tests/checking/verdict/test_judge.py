"""A law is measured, repeated where it must be, judged in one place, and what is safe instead is said."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import clockhands.checking
from clockhands.checking import examine
from clockhands.checking.checks.check import CHECKS, Check, Inapplicable, Measurement, difference
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.judge import advise, follows_another, judge, measure
from clockhands.checking.verdict.outcome import Outcome, sentence
from clockhands.checking.verdict.properties import find_property
from tests.checking.checks import planted
from tests.checking.checks.test_planted import adapter


@pytest.fixture(scope="module")
def subject() -> Subject:
    return from_model(adapter(planted.Correct), "correct")[0]


def law(size: Callable[[Subject], float], **options: bool) -> Check:
    return Check("law", "a", "c", lambda subject: Measurement(size(subject)), **options)  # type: ignore[arg-type]


def raising(fault: Exception) -> Check:
    def size(subject: Subject) -> float:
        raise fault

    return law(size)


def test_what_holds_is_measured_once(subject: Subject) -> None:
    evidence = measure(subject, law(lambda subject: 0.0))
    assert evidence.first == Measurement(0.0) and evidence.repeated is None


def test_what_is_broken_is_repeated_in_float64_with_other_texts(subject: Subject) -> None:
    seen: list[tuple[int, torch.dtype]] = []

    def size(subject: Subject) -> float:
        seen.append((subject.seed, subject.dtype))
        return 0.5

    evidence = measure(subject, law(size))
    assert seen == [(0, torch.float32), (1, torch.float64)]
    assert evidence.repeated == Measurement(0.5) and evidence.unconfirmed == ""
    seen.clear()
    measure(subject, law(size, precise=False))
    assert seen == [(0, torch.float32), (1, torch.float32)]


@pytest.mark.parametrize(("size", "confirmed"), [(0.5, True), (0.05, False)])
def test_without_float64_a_second_difference_must_be_large(subject: Subject, size: float, confirmed: bool) -> None:
    def broken(subject: Subject) -> float:
        if subject.dtype == torch.float64:
            raise RuntimeError("not implemented for Double")
        return size

    evidence = measure(subject, law(broken))
    assert (evidence.repeated is not None) == confirmed
    assert evidence.unconfirmed == ("" if confirmed else "RuntimeError: not implemented for Double")


def test_an_outcome_has_the_numbers_of_its_evidence(subject: Subject) -> None:
    check = Check("law", "a", "c", lambda s: Measurement(0.25 if s.seed else 0.5, "at 3"))
    broken, absent = judge(subject, check, "", {}), judge(subject, raising(Inapplicable("why")), "", {})
    assert (broken.size, broken.confirmed, broken.note, broken.floor, broken.tokens) == (0.5, 0.25, "at 3", None, None)
    assert absent.size is absent.confirmed is None


def test_logits_that_are_not_finite_confirm_nothing(subject: Subject) -> None:
    def damaged(subject: Subject) -> float:
        bad = torch.tensor([[[1.0], [2.0], [float("nan") if subject.seed else 2.1], [3.0]]])
        return difference(bad, torch.tensor([[[1.0], [2.0], [2.0], [3.0]]]))

    assert measure(subject, law(damaged)).unconfirmed == "1 of 4 logits are NaN, first at token 2 of row 0"


def test_what_does_not_apply_and_what_is_raised_are_told_apart(subject: Subject) -> None:
    assert measure(subject, raising(Inapplicable("no cache"))).inapplicable == "no cache"
    assert measure(subject, raising(NotImplementedError())).inapplicable == "not implemented by the model"
    assert measure(subject, raising(KeyError("x"))).raised == "raised KeyError: 'x'"
    assert measure(subject, Check("law", "a", "c", lambda s: Measurement(0.0), huggingface=True)).inapplicable


def test_a_check_begins_with_a_model_that_no_other_has_touched(subject: Subject) -> None:
    def grown(subject: Subject) -> float:
        subject.module.calls = getattr(subject.module, "calls", 0) + 1  # type: ignore[union-attr]
        return float(subject.module.calls - 1)  # type: ignore[union-attr]

    assert [measure(subject, law(grown)).first for _ in range(3)] == [Measurement(0.0)] * 3


def test_a_large_difference_that_is_gone_is_measured_again_as_at_first(subject: Subject) -> None:
    sizes = iter((0.5, 0.0, 0.5, 0.5, 0.0, 0.0, 0.05, 0.0))
    again = [measure(subject, law(lambda subject: next(sizes))).again for _ in range(3)]
    assert again == [Measurement(0.5), Measurement(0.0), None]


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
        ((0.05, 0.0), "PASS", "gone in float64 with other weights or texts: rounding, or a tie"),
        ((0.5, 0.5), "FAIL", ""),
    ],
)
def test_a_large_difference_that_vanishes_is_never_a_pass(sizes: tuple[float, ...], verdict: str, reason: str) -> None:
    (subject,) = from_model(adapter(planted.Correct))
    given = iter(sizes)
    outcome = judge(subject, Check("law", "a", "c", lambda subject: Measurement(next(given))), "", {})
    assert outcome.verdict == verdict and reason in outcome.reason
    assert bool(outcome.reason) == bool(reason)


def test_the_precision_that_is_told_is_that_of_the_repetition(subject: Subject) -> None:
    """Both said float64, which had no part in them: the one asks for none, the other's model has none."""
    in_own = judge(subject, law(lambda subject: 0.0 if subject.seed else 0.05, precise=False), "", {})

    def wanted(subject: Subject) -> Measurement:
        if subject.dtype == torch.float64:
            raise RuntimeError("not implemented for Double")
        return Measurement(1.0 if subject.seed else 0.0, wanted=True)

    without = judge(subject, Check("law", "a", "c", wanted), "", {})
    for outcome in (in_own, without):
        assert (outcome.verdict, outcome.reason[:15]) == ("PASS", "gone in float32")


def outcomes(**verdicts: str) -> dict[str, Outcome]:
    names = {name.replace("__", "."): verdict for name, verdict in verdicts.items()}
    return {name: Outcome(name, verdict, 1.0) for name, verdict in names.items()}  # type: ignore[arg-type]


def safe(**verdicts: str) -> list[str]:
    return [outcome.safe for outcome in advise(outcomes(**verdicts))]


def test_the_first_other_use_that_passed_is_advised_and_none_that_failed() -> None:
    assert safe(precision__to="FAIL", precision__load="PASS") == ["load with from_pretrained(dtype=torch.bfloat16)", ""]
    assert safe(precision__to="FAIL", precision__load="FAIL") == ["", ""]
    assert safe(precision__to="FAIL") == [""]
    assert safe(precision__to="PROPERTY", precision__load="PASS") == ["", ""], "only a failure needs another way"
    others = {"padding__left__mask": "FAIL", "padding__right": "PASS"}
    assert safe(**others, padding__left__positions="PASS")[0] == "pass position_ids made from the mask"
    assert safe(**others, padding__left__positions="FAIL")[0] == "pad on the right"


def test_packing_under_a_mask_has_the_advice_of_packing_by_positions() -> None:
    found = outcomes(packing__positions="FAIL", packing__mask="WARN", packing__block_mask="PASS")
    assert follows_another("packing.mask", found) and not follows_another("packing.positions", found)
    _, follower, _ = advise(found)
    assert (follower.verdict, follower.safe) == ("WARN", "pass a four-dimensional block mask")
    passed = outcomes(packing__positions="PASS", packing__mask="WARN")
    assert not follows_another("packing.mask", passed)
    assert advise(passed) == list(passed.values())


def test_no_verdict_is_changed() -> None:
    before = outcomes(packing__positions="FAIL", packing__mask="FAIL", cache__steps="FAIL", causal__prefix="PASS")
    assert [o.verdict for o in advise(before)] == [o.verdict for o in before.values()]


@pytest.mark.parametrize(("first", "offset"), [(0, False), (1, True), (2, True)])
def test_a_model_that_counts_from_above_zero_has_an_offset(first: int, offset: bool) -> None:
    subject: Any = SimpleNamespace(facts=SimpleNamespace(first=first))
    declared = find_property("positions.explicit", subject)
    assert (declared is not None and "padding_idx + 1" in declared.reason) is offset
