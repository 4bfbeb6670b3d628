"""The compiled checks, which are asked for: one program for all lengths."""

from __future__ import annotations

import pytest

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.judge import run_checks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check", "verdict"),
    [
        ("llama:causal", "export.export", "PASS"),
        ("llama+dynamic:causal", "export.export", "WARN"),  # frequencies that depend on the data
        ("gpt2:causal", "export.compile", "PASS"),
    ],
)
def test_a_model_is_compiled_and_exported_for_every_length(name: str, check: str, verdict: str) -> None:
    (subject,) = from_build(find(name)[0])
    (outcome,) = run_checks(subject, [each for each in select(optional=True) if each.name == check])
    assert outcome.verdict == verdict
