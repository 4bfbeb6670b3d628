"""Tokens and positions share directions where they were planted to, and do not where they were not."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.reading.capture import Capture

from ..planted import LENGTH, VOCAB, answer
from .readings import (
    half_rows,
    random_rows,
    with_tables,
)


@pytest.mark.parametrize(
    ("tokens", "positions", "sentence", "light"),
    [
        (half_rows(VOCAB, True), half_rows(LENGTH, False), "more nearly orthogonal than chance", "good"),
        (
            half_rows(VOCAB, True),
            half_rows(LENGTH, True),
            "share more directions than chance",
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


def test_a_text_of_one_token_has_no_directions() -> None:
    subject, recorded = with_tables(random_rows(VOCAB), random_rows(LENGTH, 7))
    one = Capture(torch.full((8, LENGTH), 9), [], [], recorded.ordinary_T)
    assert "All token rows of the text are equal" in answer("directions", subject, one).verdict
