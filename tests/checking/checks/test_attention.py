"""The compiled checks, which are asked for: one program for all lengths."""

from __future__ import annotations

import pytest

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.judge import run_checks


def verdict(name: str, check: str) -> str:
    (subject,) = from_build(find(name)[0])
    (outcome,) = run_checks(subject, [each for each in select(optional=True) if each.name == check])
    return outcome.verdict


@pytest.mark.slow
def test_llama_is_exported_for_every_length() -> None:
    assert verdict("llama:causal", "export.export") == "PASS"


@pytest.mark.slow
def test_frequencies_that_depend_on_the_data_cannot_be_exported() -> None:
    assert verdict("llama+dynamic:causal", "export.export") == "WARN"


@pytest.mark.slow
def test_compiling_changes_nothing() -> None:
    assert verdict("gpt2:causal", "export.compile") == "PASS"
