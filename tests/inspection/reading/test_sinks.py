"""A head that looks at one position follows the position or the token there, as it was planted."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.sinks import _decide

from ..planted_gpt2 import draw, make, read


def test_the_position_and_the_token_that_always_stands_there_are_told_apart() -> None:
    """Attention alone is the same for both: all of it goes to position 0, where token 5 always stands."""
    reading = read(make(("first position", "token 5")), draw(always_first=5))
    assert [reading.sinks[0, head].follows for head in (0, 1)] == ["position", "token"]
    assert float(reading.head_statistics[0].by_position_H.min()) > 0.9, "both look alike without an intervention"
    found = MEASURES["heads.positional"].run(reading)
    assert found.value == 1.0 and found.interval == (1.0, 1.0)
    assert "layer 1 head 1: first position, whatever token stands there" in found.verdict
    assert "layer 1 head 2: token “5”, wherever it stands" in found.verdict


def test_a_head_of_the_first_position_follows_it_where_tokens_differ() -> None:
    reading = read(make(("first position", "token 5")), draw())
    assert list(reading.sinks) == [(0, 0)] and reading.sinks[0, 0].follows == "position"
    assert reading.sinks[0, 0].token == ""


def test_a_head_that_looks_at_another_token_first_follows_the_position() -> None:
    reading = read(make(("first position", "uniform")), draw(always_first=7))
    assert reading.sinks[0, 0].follows == "position" and reading.sinks[0, 0].token == "7"


@pytest.mark.parametrize(
    ("at_position", "at_token", "follows"),
    [(0.9, 0.0, "position"), (0.0, 0.9, "token"), (0.1, 0.1, "token at the position"), (0.5, 0.5, "undecided")],
)
def test_what_is_followed_is_where_half_of_the_attention_stays(
    at_position: float, at_token: float, follows: str
) -> None:
    spread = torch.tensor([[0.1, -0.1], [-0.1, 0.1]]).double().repeat(6, 1)
    before, after = torch.tensor([[0.9, 0.0]]).double().repeat(12, 1), torch.tensor([[at_position, at_token]]) + spread
    sink = _decide(0, "x", before, after)
    assert sink.follows == follows
    assert "first position" in sink.describe() or follows == "token"
