"""The slots that pages have beside those of a study's own answer."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
from page_slots import describe_pace, describe_slower, fill_slot, list_paces

from clockhands.comparison import Comparison, judge
from clockhands.comparison.trial import TargetReached
from tests.answers import kept
from tests.comparison.planted import results
from tests.studies.test_answer import raw


def test_the_verdict_in_one_word_and_the_bar() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    kinds = [fill_slot(f"kind:{name}", comparison, verdicts) for name in ("base", "better", "worse")]
    assert kinds == ["baseline", "better", "worse"]
    barred = replace(comparison, plan=replace(comparison.plan, learned=0.77))
    assert fill_slot("bar", barred, verdicts) == "0.77"
    with pytest.raises(KeyError, match="sets no score"):
        fill_slot("bar", comparison, verdicts)


def test_the_vocabulary_and_the_share_of_positions_alone_are_computed_from_the_study() -> None:
    """The share is (1 + r²)⁻², and with r = 0.5 words have a quarter of the positions' square: 1 / 1.25²."""
    comparison = kept.read_kept("how-wide")
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    assert fill_slot("vocabulary", comparison, verdicts) == "400"
    trial = comparison.trials[0]
    planted = replace(trial, inside=replace(trial.measured, before={"word over position": 0.5}))
    comparison = replace(comparison, trials=(planted,))
    assert fill_slot(f"alone:{trial.variant}", comparison, verdicts) == "64.0"


def test_a_measure_during_training_is_that_of_its_step() -> None:
    comparison = kept.read_kept("scale.long")
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    trials = [trial for trial in raw("scale.long") if trial["variant"] == "1, shared"]
    expected = fmean(dict(trial["inside"]["during"])[100]["word over position"] for trial in trials)
    text = fill_slot("during:1, shared:100:word over position", comparison, verdicts)
    assert float(text.partition(" [")[0]) == pytest.approx(expected, abs=0.0051)
    with pytest.raises(KeyError, match=r"'word over position' of '1, shared' was measured at the steps .*, not at 101"):
        fill_slot("during:1, shared:101:word over position", comparison, verdicts)


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
