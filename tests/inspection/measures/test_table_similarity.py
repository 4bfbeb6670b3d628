"""The similarity of position rows by distance."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.inspection.measures.table_similarity import _describe_trend, compute_cosines, compute_symmetry

from ..planted import table_answer
from .tables import learned, walk


def test_the_cosine_of_every_distance_is_in_the_table() -> None:
    """The largest distance was left out."""
    found = table_answer("table.similarity", learned(walk(40, 16)))
    assert [row[0] for row in found.table.rows] == list(range(1, 39)), "39 rows without the first"


@pytest.mark.parametrize(
    ("correlation", "said"),
    [
        (-1.0, "falls steadily"),
        (-0.6, "falls on the whole (ρ = −0.60)"),
        (-0.25, "does not fall on the whole (ρ = −0.25)"),
    ],
)
def test_how_similarity_goes_with_distance(correlation: float, said: str) -> None:
    """The verdict spoke of waves, which nothing measures."""
    assert _describe_trend(correlation) == said


def test_distance_explains_the_similarities_of_a_walk_and_not_those_of_noise() -> None:
    smooth = table_answer("table.similarity", learned(walk(64, 16)))
    assert smooth.verdict.startswith("Distance alone explains") and smooth.light == "good"
    noise = table_answer("table.similarity", learned(torch.randn(64, 16, generator=torch.Generator().manual_seed(1))))
    assert noise.verdict.startswith("No effect of distance on the similarities was found") and noise.light == "warn"


def test_the_cosine_of_two_rows_is_that_of_the_rows() -> None:
    """Of rows that are long and short, so that nothing else divides out."""
    rows = torch.randn(12, 5, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, 12)[:, None]
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    torch.testing.assert_close(compute_cosines(rows), expected)


def test_a_table_that_is_as_similar_ahead_as_behind_is_symmetric() -> None:
    """A cosine that depends on the distance alone: 1. One that grows along the table: far from it."""
    place = torch.arange(40.0)
    distance = (place - place[:, None]).abs()
    assert compute_symmetry(torch.cos(0.3 * distance)) == pytest.approx(1.0)
    noise = torch.rand(40, 40, generator=torch.Generator().manual_seed(0))
    assert abs(compute_symmetry((noise + noise.T) / 2)) < 0.3
    assert compute_symmetry(torch.ones(40, 40)) == 0.0


@pytest.mark.parametrize(("period", "cosine"), [(8, "0.71"), (4, "0.00"), (3, "−0.50")])
def test_neighbours_have_the_cosine_of_one_step(period: int, cosine: str) -> None:
    """Rows on a circle that turn by 2π/period, all around it."""
    angle = 2 * math.pi * torch.arange(193.0) / period
    rows = torch.stack([angle.cos(), angle.sin()], dim=1).repeat(1, 2)
    assert (
        f"; neighbours have cosine {cosine}, and similarity " in table_answer("table.similarity", learned(rows)).verdict
    )


@pytest.mark.parametrize(("rank", "told"), [(3, True), (64, False)])
def test_a_low_rank_is_told_where_it_was_planted(rank: int, told: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = (
        torch.randn(128, rank, generator=generator) @ torch.linalg.qr(torch.randn(64, 64, generator=generator)).Q[:rank]
    )
    verdict = table_answer("table.similarity", learned(rows)).verdict
    sentence = " The table has a low rank: 99 % of its variance lies in 3 directions of 64."
    assert verdict.endswith(sentence) == told and ("low rank" in verdict) == told
