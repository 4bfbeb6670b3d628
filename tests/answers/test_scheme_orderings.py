"""Published orderings that tell what one scheme does beside others, on results whose truth is planted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheme_orderings import SchemeOrdering, collect_orderings

from clockhands.comparison.trial import LongerText
from tests.answers.test_scheme_results import BASE, EIGHT, SINKS, plant

ALONE = "windows alone"


def order(loss: float) -> dict[str, list[SchemeOrdering]]:
    """Return the orderings where windows with sinks have so much loss on the longest text, and without 2.0."""
    made = plant({BASE: 2.0, ALONE: 2.0, SINKS: 2.0})
    trials = [
        replace(trial, longer={EIGHT: LongerText(loss={SINKS: loss}.get(trial.variant, 2.0) + trial.seed / 1000)})
        for trial in made.trials
    ]
    return collect_orderings({"which-layers": replace(made, trials=tuple(trials))})


@pytest.mark.parametrize(
    ("loss", "verdict", "worse"),
    [(1.8, "reproduced", False), (2.2, "contradicted", True), (2.0, "equal within", False)],
)
def test_what_a_scheme_adds_is_told_by_the_results(loss: float, verdict: str, worse: bool) -> None:
    (told,) = order(loss)["sinks"]
    assert f"“Sinks lower the loss of windows.” Here, loss on Python's source: {verdict}" in told.sentence
    assert told.worse is worse


def test_variants_that_differ_in_two_schemes_are_left_out() -> None:
    assert set(order(1.8)) == {"sinks"}
