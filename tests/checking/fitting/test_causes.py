"""A failing check of caching or padding says where tokens stand, of the models from scratch that ports are made of."""

from __future__ import annotations

import pytest

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks
from tests.checking.scratch.ports import scratch

COUNTED, MASKED = "torch.arange(past, past + new", "mask[:, None, None, :].bool())"
ANGLE, ADDED = "at[:, None, :, None].float()", "scores = scores - ("
STEP = "torch.arange(past {0} * (past > 0), past {0} * (past > 0) + new"


@pytest.mark.parametrize(
    ("scheme", "check", "edit", "said"),
    [
        ("rope", "cache.steps", (COUNTED, STEP.format("- 8")), "each decode step stands 8 too early"),
        ("learned", "cache.steps", (COUNTED, STEP.format("+ 3")), "each decode step stands 3 too late"),
        ("rope", "cache.chunks", (COUNTED, "torch.arange(0, new"), "each later chunk begins at position 0"),
        ("rope", "padding.left.mask", (MASKED, "torch.ones_like(mask)[:, None, None, :].bool())"), "reads the pads"),
        (
            "alibi",
            "cache.steps",
            (ADDED, "scores = scores - (q.shape[2] > 1) * ("),
            "each decode step adds no bias by distance",
        ),
    ],
    ids=["angles early", "rows late", "chunk from 0", "pads read", "no bias"],
)
def test_a_check_that_fails_says_where_the_tokens_stand(
    scheme: str, check: str, edit: tuple[str, str], said: str
) -> None:
    (subject,) = from_model(scratch(scheme, (edit,)))
    (outcome,) = run_checks(subject, select([check]))
    assert (outcome.verdict, outcome.check) == ("FAIL", check)
    assert outcome.cause.endswith(said)
