"""Words and positions that are added, against simulation and hand-computed cases."""

from __future__ import annotations

import math

import pytest
import torch
from exact.added import (
    compare_concatenation,
    compute_score_shares,
    make_rows,
    measure_by_channel,
    measure_directions,
    share_scores,
)

from clockhands.schemes import Sinusoidal


def test_the_rows_are_those_that_models_add() -> None:
    added = Sinusoidal(64).encode(torch.arange(50)[None])[0]
    assert torch.allclose(make_rows(64, 50).float(), added, atol=1e-5)
    assert float(make_rows(64, 3)[2, 1]) == pytest.approx(math.cos(2))


@pytest.mark.parametrize("ratio", [0.3, 1.0, 1.6])
def test_the_shares_are_those_of_drawn_projections(ratio: float) -> None:
    """2,000 draws of M = QᵀK with independent entries, for fixed words and positions of these lengths."""
    generator = torch.Generator().manual_seed(3)
    vectors = torch.nn.functional.normalize(torch.randn(4, 24, generator=generator), dim=-1)
    x, y, e, f = ratio * vectors[0], ratio * vectors[1], vectors[2], vectors[3]
    matrices = torch.randn(20_000, 24, 24, generator=generator)
    variances = [float(torch.einsum("i,nij,j->n", a, matrices, b).var()) for a, b in ((x, y), (x, f), (e, y), (e, f))]
    shares = (variances[0], variances[1] + variances[2], variances[3])
    assert share_scores(ratio) == pytest.approx([share / sum(shares) for share in shares], rel=0.05)


def test_with_the_factor_the_ratio_is_the_same_at_every_width() -> None:
    told = compute_score_shares()
    assert told["ratio with 64"] == pytest.approx(math.sqrt(2)) == told["ratio with 512"]
    assert told["ratio without 512"] == pytest.approx(math.sqrt(2 / 512))
    assert told["positions with 64"] == pytest.approx(100 / 9)


def test_channels_of_long_waves_stand_still() -> None:
    told = measure_by_channel()
    assert told["still channels 50"] > told["still channels 512"] > 0
    assert told["first half 50"] > told["first half 512"] > 50


def test_a_sinusoid_fills_fewer_directions_than_random_rows() -> None:
    told = measure_directions()
    assert told["filled 512"] < told["filled by random rows 512"] / 5
    # Marchenko and Pastur: N rows of D independent channels fill about N·D/(N + D).
    assert told["filled by random rows 512"] == pytest.approx(256, rel=0.02)
    assert told["angle 512"] == pytest.approx(math.degrees(math.asin(512**-0.5)))


def test_a_concatenation_is_a_sum() -> None:
    told = compare_concatenation()
    assert told["error of the sum"] == 0 and told["error of the projection"] < 1e-12
    assert told["embedding, sum"] - told["embedding, concatenation"] == 32_000 * 128
