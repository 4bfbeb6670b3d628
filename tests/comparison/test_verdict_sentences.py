"""What a difference means, in one sentence, and numbers as verdicts write them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clockhands.comparison.statistics import Difference, estimate_difference
from clockhands.comparison.verdict_sentences import describe_difference, format_number


def gap_of(noise: np.ndarray, shift: float) -> Difference:
    return estimate_difference(shift + noise - noise.mean(), np.zeros_like(noise))


def test_verdicts_are_sentences_with_their_numbers() -> None:
    noise = np.random.default_rng(2).normal(0, 2, (6, 100))
    up, down = gap_of(noise, 5), gap_of(noise, -5)
    better = describe_difference(up, 6, higher_is_better=True, margin=1.0)[1]
    assert better == f"better by {up.value:.1f} points [{up.low:.1f}, {up.high:.1f}]"
    assert describe_difference(up, 6, higher_is_better=False, margin=1.0)[0] == "worse"
    worse = describe_difference(down, 6, higher_is_better=True, margin=1.0)[1]
    assert worse == f"worse by {-down.value:.1f} points [{-down.high:.1f}, {-down.low:.1f}]"
    assert describe_difference(up, 6, higher_is_better=True, margin=9.0)[1].endswith(
        ", less than the margin of 9 points"
    )
    small = replace(up, value=0.5, low=0.498, high=0.502)
    for margin, unit, said in (
        (1.0, "points of BLEU", "1 point of BLEU"),
        (1.0, "nats", "1 nat"),
        (2, "nats", "2 nats"),
    ):
        text = describe_difference(small, 6, higher_is_better=True, margin=margin, unit=unit)[1]
        assert text.endswith(f" {unit} [0.498, 0.502], less than the margin of {said}")
    narrow = replace(up, value=5.0, low=4.961, high=4.964)
    assert (
        describe_difference(narrow, 6, higher_is_better=True, margin=1.0)[1] == "better by 5.000 points [4.961, 4.964]"
    )
    assert describe_difference(up, 4, higher_is_better=True, margin=1.0)[1] == "too few seeds to tell (4 of at least 5)"
    assert (
        describe_difference(None, 1, higher_is_better=True, margin=1.0)[1] == "too few seeds to tell (1 of at least 5)"
    )


def test_equal_is_said_within_the_margin_alone() -> None:
    none = gap_of(np.random.default_rng(2).normal(0, 2, (6, 100)), 0.0)
    widest = max(-none.inner[0], none.inner[1])
    kind, said = describe_difference(none, 6, higher_is_better=True, margin=1.01 * widest, digits=2)
    assert kind == "equivalent"
    assert said == (
        f"equivalent: the difference is from −{-none.inner[0]:.2f} to +{none.inner[1]:.2f} points, "
        f"within ±{1.01 * widest:g}"
    )
    kind, said = describe_difference(none, 6, higher_is_better=True, margin=0.99 * widest, digits=2)
    assert kind == "undecided"
    assert said == (
        f"undecided: the difference is from −{-none.low:.2f} to +{none.high:.2f} points "
        f"({none.detectable:.2f} could have been detected)"
    )
    said = describe_difference(none, 6, higher_is_better=True, margin=0.1, detecting=False)[1]
    assert "detected" not in said


@pytest.mark.parametrize(
    ("value", "said"),
    [(12.34, "12.3"), (0.1, "0.1"), (0.0, "0.0"), (0.04, "0.04"), (-0.003, "-0.003"), (0.0000042, "0.000004")],
)
def test_a_number_has_as_many_decimals_as_show_it(value: float, said: str) -> None:
    assert format_number(value) == said
