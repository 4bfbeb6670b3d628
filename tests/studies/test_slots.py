"""The slots of a text are filled with what was measured, and what was not measured is called so."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import fmean

import pytest

from clockhands.comparison import Comparison, judge
from clockhands.comparison.trial import LongerText, TargetReached
from clockhands.studies.slots import (
    NOT_MEASURED,
    describe_pace,
    describe_slower,
    fill_slots,
    format_interval,
    list_paces,
)
from tests.answers import kept
from tests.comparison.planted import results, shares
from tests.studies.test_answer import raw


def test_the_vocabulary_and_the_share_of_positions_alone_are_computed_from_the_study() -> None:
    """The share is (1 + r²)⁻², and with r = 0.5 words have a quarter of the positions' square: 1 / 1.25²."""
    comparison = kept.read_kept("how-wide")
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    assert fill_slots("[[vocabulary]]", comparison, verdicts) == "400"
    trial = comparison.trials[0]
    planted = replace(trial, inside=replace(trial.measured, before={"word over position": 0.5}))
    comparison = replace(comparison, trials=(planted,))
    assert fill_slots(f"[[alone:{trial.variant}]]", comparison, verdicts) == "64.0"


def test_a_measure_during_training_is_that_of_its_step() -> None:
    comparison = kept.read_kept("scale.long")
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    trials = [trial for trial in raw("scale.long") if trial["variant"] == "1, shared"]
    expected = fmean(dict(trial["inside"]["during"])[100]["word over position"] for trial in trials)
    text = fill_slots("[[during:1, shared:100:word over position]]", comparison, verdicts)
    assert float(text.partition(" [")[0]) == pytest.approx(expected, abs=0.0051)
    with pytest.raises(KeyError, match=r"'word over position' of '1, shared' was measured at the steps .*, not at 101"):
        fill_slots("[[during:1, shared:101:word over position]]", comparison, verdicts)


def test_slots_are_filled_with_what_was_measured() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    text = fill_slots("[[score:base]] and [[verdict:better]], [[after:base:loud]].", comparison, verdicts)
    assert text.endswith(", 2.00.") and "better by" in text and "[" in text
    assert (
        fill_slots("[[kind:base]], [[kind:better]], [[kind:worse]]", comparison, verdicts) == "baseline, better, worse"
    )
    assert fill_slots("[[before:base:quiet]]", comparison, verdicts) == "(not measured)"
    barred = replace(comparison, plan=replace(comparison.plan, learned=0.77))
    assert fill_slots("[[bar]]", barred, verdicts) == "0.77"
    with pytest.raises(KeyError, match="sets no score"):
        fill_slots("[[bar]]", comparison, verdicts)
    with pytest.raises(KeyError, match="no slot 'mean'"):
        fill_slots("[[mean:base]]", comparison, verdicts)


def test_a_text_that_every_model_refused_is_called_so() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    texts = {"twice": LongerText(loss=2.0), "eight times": LongerText(refused="the table ends")}
    read = [replace(trial, longer=texts) if trial.variant == "base" else trial for trial in comparison.trials]
    told = replace(comparison, trials=tuple(read))
    assert fill_slots("[[longer:base:twice]], [[longer:base:eight times]]", told, verdicts) == "2.00, refused"
    assert fill_slots("[[longer:better:eight times]]", told, verdicts) == "(not measured)"


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([0.9, 0.9, 0.9, 0.02, 0.01], r"[89]\d\.\d % in the 3 of 5 seeds that learned"),
        ([0.9, 0.9, 0.02, 0.02, 0.01], r"\d\.\d to [89]\d\.\d % over its seeds, of which 2 of 5 learned"),
        ([0.9, 0.9, 0.02, 0.02, None], r"\d\.\d to [89]\d\.\d % over the 4 seeds that ended, of which 2 of 5 learned"),
        ([0.9] * 5, r"[89]\d\.\d \[.+\] %"),
    ],
)
def test_of_fewer_than_three_seeds_that_learned_no_mean_is_told(rates: list[float | None], said: str) -> None:
    made = shares({"base": [0.9] * 5, "torn": rates})
    verdicts = {verdict.variant: verdict for verdict in judge(made)}
    assert re.fullmatch(said, fill_slots("[[score:torn]] %", made, verdicts))


@pytest.mark.parametrize(
    ("values", "digits", "told"),
    [
        ([], 1, NOT_MEASURED),
        ([2.0, 2.0, 2.0], 1, "2.0"),
        ([2.0, 2.04], 1, "2.0"),
        ([2.0, 2.04], 2, "2.02 [1.77, 2.27]"),
    ],
)
def test_a_number_that_is_the_same_for_every_seed_has_no_interval(values: list[float], digits: int, told: str) -> None:
    """The last: mean 2.02, and 12.706 times the standard error of 0.02 to either side (Student, one degree)."""
    assert format_interval(values, digits) == told


def test_an_end_near_zero_shows_its_sign() -> None:
    """Of five values: mean 0.002, standard error 0.00057, and 2.78 of these on either side."""
    values = [0.0002, 0.0038, 0.002, 0.002, 0.002]
    assert format_interval(values, 3, sign="+") == "+0.002 [+0.0004, +0.004]"
    assert format_interval([-value for value in values], 3, sign="+") == "−0.002 [−0.004, −0.0004]"


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
