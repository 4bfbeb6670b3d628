"""The slots of a text are filled with what was measured, and what was not measured is called so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clockhands.comparison import judge
from clockhands.comparison.trial import LongerText
from clockhands.studies.slots import NOT_MEASURED, fill_slots, format_interval
from tests.comparison.planted import results, shares


def test_slots_are_filled_with_what_was_measured() -> None:
    comparison = results()
    verdicts = {verdict.variant: verdict for verdict in judge(comparison)}
    text = fill_slots("[[score:base]] and [[verdict:better]], [[after:base:loud]].", comparison, verdicts)
    assert text.endswith(", 2.00.") and "better by" in text and "[" in text
    assert fill_slots("[[before:base:quiet]]", comparison, verdicts) == "(not measured)"
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
