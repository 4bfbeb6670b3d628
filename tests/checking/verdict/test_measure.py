"""A law is measured, and repeated where it is broken; what the model raises is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clockhands.checking.checks.check import Check, Inapplicable, Measurement, difference
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.models.subject import Subject
from clockhands.checking.verdict.measure import measure
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
