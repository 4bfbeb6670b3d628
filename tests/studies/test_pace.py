"""How soon seeds reach the target."""

from __future__ import annotations

import math
from dataclasses import replace

from clockhands.comparison import Comparison
from clockhands.comparison.trial import TargetReached
from clockhands.studies.pace import describe_pace, describe_slower, list_paces
from tests.comparison.planted import results


def _with_paces(**paces: list[float]) -> Comparison:
    """Planted results of five seeds that reached the target at these steps; infinity for never."""
    comparison = results(seeds=5)
    trials = []
    for trial in comparison.trials:
        at = paces[trial.variant][trial.seed - 1] if trial.variant in paces else math.inf
        trials.append(replace(trial, reached=TargetReached(int(at), 1.0) if math.isfinite(at) else None))
    return replace(comparison, trials=tuple(trials))


def test_seeds_that_all_come_later_are_later() -> None:
    comparison = _with_paces(base=[120, 120, 120, 140, 120], worse=[200, 240, 220, math.inf, 200])
    assert list_paces(comparison, "worse")[3] == math.inf
    assert describe_pace(comparison, "base") == "120 to 140 steps"
    assert describe_pace(comparison, "worse") == "200 to 240 steps in 4 of 5 seeds"
    assert describe_slower(comparison, "worse") == (
        "later: 5 of 5 seeds took longer than any of the baseline's; exact rank test, p = 0.008"
    )


def test_seeds_that_come_as_soon_or_sooner_are_not_later() -> None:
    comparison = _with_paces(
        base=[120, 140, 160, 180, 200], same=[130, 140, 170, 180, 190], better=[20, 20, 20, 20, 20]
    )
    assert describe_slower(comparison, "same").startswith("undecided: 0 of 5")
    assert describe_slower(comparison, "better").startswith("undecided: 0 of 5")
    assert describe_pace(comparison, "better") == "20 steps"
    assert describe_pace(comparison, "worse") == "more than 6 steps"


def test_what_no_seed_has_measured_is_not_called_slow() -> None:
    """As in an answer that is printed while its trials run, or after all seeds of a variant failed."""
    comparison = _with_paces(base=[120, 120, 120, 120, 120])
    for absent in ("base", "worse"):
        part = replace(comparison, trials=tuple(trial for trial in comparison.trials if trial.variant != absent))
        assert describe_pace(part, absent) == "(not measured)"
        assert describe_slower(part, "worse") == "(not measured)"
    counted = replace(comparison, plan=replace(comparison.plan, budget=("tokens", 200_000)))
    assert describe_pace(counted, "worse") == "more than 200,000 tokens"
