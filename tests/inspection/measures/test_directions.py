"""Tokens and positions share directions where they were planted to, and do not where they were not."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures.directions import _judge
from clockhands.inspection.reading.capture import Capture
from clockhands.model import PositionConfig

from ..planted import LENGTH, VOCAB, answer
from .readings import (
    half_rows,
    random_rows,
    read_own,
    with_tables,
)


@pytest.mark.parametrize(
    ("tokens", "positions", "sentence", "light"),
    [
        (half_rows(VOCAB, True), half_rows(LENGTH, False), "more nearly orthogonal than by chance", "good"),
        (
            half_rows(VOCAB, True),
            half_rows(LENGTH, True),
            "share more directions than by chance",
            "warn",
        ),
        (random_rows(VOCAB), random_rows(LENGTH, 7), "no significant difference from chance", "info"),
        (random_rows(VOCAB), torch.zeros(LENGTH, 64), "All position rows are equal", "skip"),
        (random_rows(VOCAB), torch.ones(LENGTH, 64), "All position rows are equal", "skip"),
    ],
)
def test_directions(tokens: torch.Tensor, positions: torch.Tensor, sentence: str, light: str) -> None:
    found = answer("directions", *with_tables(tokens, positions))
    assert sentence in found.verdict and found.light == light
    if light != "skip":
        assert found.interval is not None and found.interval[0] <= found.value <= found.interval[1]  # type: ignore[operator]


def test_the_axis_of_the_figure_says_what_is_drawn() -> None:
    """The curve, whose top is 1 however wide it is, was called a normal density."""
    found = answer("directions", *with_tables(random_rows(VOCAB), random_rows(LENGTH, 7)))
    assert found.figure is not None
    (panel,) = found.figure.panels
    density = torch.tensor(panel.marks[0].y)
    assert float(density.max()) == pytest.approx(1, abs=1e-2)
    assert panel.ylabel == "random rotations: normal density / its maximum"


def test_a_text_of_one_token_has_no_directions() -> None:
    subject, recorded = with_tables(random_rows(VOCAB), random_rows(LENGTH, 7))
    one = Capture(torch.full((8, LENGTH), 9), [], [], recorded.ordinary_T)
    assert "All token rows of the text are equal" in answer("directions", subject, one).verdict


@pytest.mark.parametrize(
    ("z", "reaches_chance", "sentence", "light"),
    [
        (3.0, True, "undecided, since the interval holds the mean of chance", "info"),
        (-3.0, True, "undecided, since the interval holds the mean of chance", "info"),
        (3.0, False, "tokens and positions share more directions than by chance", "warn"),
        (1.0, True, "no significant difference from chance", "info"),
    ],
)
def test_an_overlap_whose_interval_holds_chance_is_undecided(
    z: float, reaches_chance: bool, sentence: str, light: str
) -> None:
    assert _judge(z, reaches_chance) == (light, sentence)


def test_concatenated_positions_share_no_directions() -> None:
    subject, recorded = read_own(PositionConfig("sinusoidal", combine="concatenate", width=16), tying="none")
    found = answer("directions", subject, recorded)
    assert (found.light, found.verdict) == (
        "skip",
        "Tokens and positions are concatenated: they cannot share directions.",
    )
    assert answer("directions", *read_own(PositionConfig("sinusoidal"))).light != "skip"
