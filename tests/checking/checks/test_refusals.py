"""What a model refuses with a reason, or a setting that it has no use for, is no fault of it."""

from __future__ import annotations

import pytest

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.models.make_subjects import from_build
from clockhands.checking.models.tiny import find
from clockhands.checking.verdict.judge import run_checks

CASES = [
    ("rwkv:causal", "generate.beam", "the model refuses: RwkvForCausalLM cannot use beam search with a cache"),
    ("blt:causal", "inputs.embeds", "the model refuses: input_ids is required"),
    ("ibert:masked", "inputs.embeds", "the embedding of the model gives more than vectors"),
    ("dots1:causal", "config.keys", "no such key in the configuration"),
]


@pytest.mark.parametrize(("name", "check", "reason"), CASES)
def test_it_does_not_apply(name: str, check: str, reason: str) -> None:
    (outcome,) = run_checks(from_build(find(name)[0])[0], [CHECKS[check]], name)
    assert (outcome.verdict, outcome.reason[: len(reason)]) == ("N/A", reason)


def test_a_crash_is_not_explained_by_the_check_that_another_depends_on() -> None:
    """Reformer does not tell documents apart, and raises where a mask stands beside positions: both are said."""
    subject = from_build(find("reformer:causal")[0])[0]
    _, masked = run_checks(subject, [CHECKS["packing.positions"], CHECKS["packing.mask"]], "reformer:causal")
    assert masked.size is None and masked.known == "reformer-axial"
