"""What heads attend to is counted as it was planted, and what a head at one place follows is found by moving it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from clockhands.inspection.measures import MEASURES
from clockhands.inspection.reading.head_statistics import (
    MAX_OFFSET,
    HeadStatistics,
    HeadSums,
    PositionSums,
    _choose_queries,
    _decide,
    _estimate_explained_share,
)

from ..planted_gpt2 import Kind, draw, make, read

TEXTS, HEADS, LENGTH = 24, 3, 7


def _draw(position: float, noise: float, seed: int, texts: int = TEXTS) -> torch.Tensor:
    """Draw attention less uniform attention: the same matrix in every text, and noise of its own in each."""
    generator = torch.Generator().manual_seed(seed)
    same = position * torch.randn(1, HEADS, LENGTH, LENGTH, generator=generator)
    return same + noise * torch.randn(texts, HEADS, LENGTH, LENGTH, generator=generator)


def _add(attention: torch.Tensor, batch: int) -> PositionSums:
    sums = PositionSums()
    for part in attention.split(batch):
        sums.add(part)
    return sums


def test_the_share_is_the_one_that_was_planted_and_none_where_none_was() -> None:
    """Without the correction for chance, noise alone would have a share of 1/24."""
    for position, expected in ((1.0, 0.5), (3.0, 0.9), (0.0, 0.0)):
        shares = torch.stack([_add(_draw(position, 1.0, seed), 24).estimate_shares()[0] for seed in range(20)])
        assert float(shares.mean()) == pytest.approx(expected, abs=0.01)


def test_all_is_explained_where_every_text_is_the_same() -> None:
    shares, intervals, _ = _add(_draw(1.0, 0.0, 0), 8).estimate_shares()
    torch.testing.assert_close(shares, torch.ones(HEADS, dtype=torch.float64))
    torch.testing.assert_close(intervals, torch.ones(HEADS, 2, dtype=torch.float64))


@pytest.mark.parametrize("batch", [1, 5, 24])
def test_batches_make_no_difference(batch: int) -> None:
    attention = _draw(1.0, 1.0, 0)
    for mine, whole in zip(
        _add(attention, batch).estimate_shares(), _add(attention, 24).estimate_shares(), strict=True
    ):
        torch.testing.assert_close(mine, whole)


def test_the_interval_is_the_jackknife_over_groups_by_hand() -> None:
    attention = _draw(1.0, 1.0, 1).double()
    _, intervals, without = _add(attention, 8).estimate_shares()
    groups = torch.arange(TEXTS) % 8
    by_hand = []
    for group in range(8):
        rest = attention[groups != group]
        mean = rest.mean(0)
        between = len(rest) * mean.square().sum((-1, -2))
        by_hand.append(_estimate_explained_share(between, (rest - mean).square().sum((0, 2, 3)), len(rest)))
    torch.testing.assert_close(without, torch.stack(by_hand))
    error = (7 / 8 * (without - without.mean(0)).square().sum(0)).sqrt()
    torch.testing.assert_close(intervals[:, 1] - intervals[:, 0], 2 * 2.364624 * error, rtol=1e-6, atol=0)


def test_the_interval_holds_the_planted_share() -> None:
    """95 % of 120 intervals, of heads that are independent; the binomial's own spread is 2 %."""
    held = []
    for seed in range(40):
        attention = _draw(1.0, 1.0, seed)
        same = attention.mean(0)
        true = same.square().sum((-1, -2)) / (same.square().sum((-1, -2)) + LENGTH**2)
        _, intervals, _ = _add(attention, 24).estimate_shares()
        held += ((intervals[:, 0] < true + 0.03) & (true - 0.03 < intervals[:, 1])).tolist()
    assert sum(held) >= 0.9 * len(held)


def test_rounding_of_uniform_attention_is_no_position() -> None:
    """It is the same in every text, so that its share was 1."""
    shares, intervals, _ = _add(torch.full((8, 2, 4, 4), 1e-8), 8).estimate_shares()
    assert shares.tolist() == [0.0, 0.0] and intervals.flatten().tolist() == [0.0] * 4


def test_two_texts_have_a_share_and_no_interval() -> None:
    shares, intervals, without = _add(_draw(1.0, 1.0, 0, texts=2), 2).estimate_shares()
    assert torch.equal(intervals, torch.stack([shares, shares], dim=-1)) and torch.equal(without, shares[None])


SIZE = 32
EVERY = torch.ones(SIZE, SIZE, dtype=torch.bool)
BELOW, NEAR = EVERY.tril(), EVERY.tril(4).triu(-4)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [(EVERY, slice(8, 24)), (NEAR, slice(8, 24)), (BELOW, slice(4, SIZE)), (BELOW & NEAR, slice(4, SIZE))],
    ids=["all", "a window both ways", "causal", "a causal window"],
)
def test_both_sides_are_open_where_keys_lie_on_both(mask: torch.Tensor, expected: slice) -> None:
    """A window both ways was taken for causal, for its first query does not see the last key."""
    assert _choose_queries(mask) == expected


def _attend(weights_ST: torch.Tensor, mask_ST: torch.Tensor) -> HeadStatistics:
    """The statistics of one head that attends like this in each of nine texts."""
    shape = (9, 1, *weights_ST.shape)
    call: Any = SimpleNamespace(weights_BHST=weights_ST.expand(shape), mask_BHST=mask_ST.expand(shape))
    sums = HeadSums(torch.ones(len(mask_ST), dtype=torch.bool))
    sums.add(call)
    return sums.summarise()


@pytest.mark.parametrize("length", [8, 20, 33, 60])
@pytest.mark.parametrize("causal", [True, False])
def test_a_head_of_the_first_token_is_named_so_in_windows_of_every_length(length: int, causal: bool) -> None:
    """Only the last query has a key as far before it as the window is long: the head was named after that offset."""
    mask = torch.ones(length, length, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    weights = torch.eye(length) * 0.1
    weights[:, 0] += 0.9
    found = _attend(weights, mask)
    assert found.name_head(0) == "first position"
    furthest, queries = min(length - 1, MAX_OFFSET), max(length - MAX_OFFSET + 1, 1)
    assert float(found.attention_by_offset_HJ[0, MAX_OFFSET - furthest]) > 0.9 / queries * 0.99
    before = torch.diag(torch.full((length - 2,), 1.0), -2)
    before[:2, 0] = 1.0
    assert _attend(before, mask).name_head(0) == "offset -2"
    assert float(_attend(before, mask).favourite_share_H[0]) == pytest.approx(1.0)


def test_the_position_and_the_token_that_always_stands_there_are_told_apart() -> None:
    """Attention alone is the same for both: all of it goes to position 0, where token 5 always stands."""
    reading = read(make(("first position", "token 5")), draw(always_first=5))
    assert [reading.sinks[0, head].follows for head in (0, 1)] == ["position", "token"]
    assert float(reading.head_statistics[0].by_position_H.min()) > 0.9, "both look alike without an intervention"
    found = MEASURES["heads.positional"].run(reading)
    assert found.value == 1.0 and found.interval == (1.0, 1.0)
    assert "layer 1 head 1: first position, whatever token stands there" in found.verdict
    assert "layer 1 head 2: token “5”, wherever it stands" in found.verdict


@pytest.mark.parametrize(
    ("second", "first_token", "told"), [("token 5", None, ""), ("uniform", 7, "7")], ids=["none", "another"]
)
def test_a_head_of_the_first_position_follows_it_whatever_token_stands_there(
    second: Kind, first_token: int | None, told: str
) -> None:
    reading = read(make(("first position", second)), draw(always_first=first_token))
    assert list(reading.sinks) == [(0, 0)]
    assert (reading.sinks[0, 0].follows, reading.sinks[0, 0].token) == ("position", told)


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
