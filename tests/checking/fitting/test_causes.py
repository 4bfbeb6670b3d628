"""A failing check of caching or padding says where tokens stand, and nothing where that does not explain it."""

from __future__ import annotations

import pytest

from clockhands.checking.checks.check import select
from clockhands.checking.models.make_subjects import from_model
from clockhands.checking.verdict.judge import run_checks
from tests.checking.scratch.planted import CHECKED
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


def test_what_has_another_cause_gets_no_clue() -> None:
    """Values lost from a cache, and a single token read louder: nothing about positions explains them."""
    kept = "self.k[index], self.v[index] = k, v"
    edits = (
        (kept, f"v = v * (v.shape[2] < 12)\n        {kept}"),
        ("self.head(self.norm(x))", "self.head(self.norm(x)) * (1 + (new == 1))"),
    )
    for edit in edits:
        (subject,) = from_model(scratch("rope", (edit,)))
        (outcome,) = run_checks(subject, select(["cache.steps"]))
        assert (outcome.verdict, outcome.cause) == ("FAIL", "")


@pytest.mark.parametrize("scheme", ["rope", "learned"])
def test_nothing_is_said_of_a_correct_model(scheme: str) -> None:
    (subject,) = from_model(scratch(scheme, ()))
    assert {(outcome.verdict, outcome.cause) for outcome in run_checks(subject, select(CHECKED))} <= {
        ("PASS", ""),
        ("PROPERTY", ""),
        ("WARN", ""),
        ("N/A", ""),
    }
