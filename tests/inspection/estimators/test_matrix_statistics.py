"""Statistics of single matrices, against NumPy and against matrices whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clockhands.inspection.estimators.matrix_statistics import (
    average_diagonals,
    compute_covariance,
    compute_participation,
    compute_random_participation,
    compute_toeplitz_r2,
    count_leading,
    fit_line,
    read_exact_hands,
)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_covariance_is_that_of_numpy(weighted: bool) -> None:
    rows = 5 + _random(40, 3)
    weights = torch.arange(1, 41) if weighted else None
    frequencies = None if weights is None else weights.numpy()
    expected = np.cov(rows.numpy(), rowvar=False, bias=True, fweights=frequencies)
    torch.testing.assert_close(compute_covariance(rows.float(), weights), torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_a_line_has_its_slope_and_r2() -> None:
    x = torch.arange(50, dtype=torch.float64)
    assert fit_line(3 - 0.25 * x) == pytest.approx((-0.25, 1.0))
    noisy = 0.1 * x + _random(50)
    slope, r2 = fit_line(noisy)
    assert slope == pytest.approx(np.polyfit(x.numpy(), noisy.numpy(), 1)[0])
    assert r2 == pytest.approx(float(np.corrcoef(x.numpy(), noisy.numpy())[0, 1]) ** 2)
    assert fit_line(torch.full((9,), 2.0)) == (0.0, 0.0)


def test_each_distance_has_the_mean_of_its_diagonal() -> None:
    matrix = torch.arange(16.0).reshape(4, 4)
    assert average_diagonals(matrix).tolist() == [(1 + 6 + 11) / 3, (2 + 7) / 2, 3]


def test_distance_determines_a_toeplitz_matrix_and_hardly_a_random_one() -> None:
    distance = (torch.arange(40)[:, None] - torch.arange(40)).abs()
    assert compute_toeplitz_r2(torch.exp(-distance / 5)) == pytest.approx(1.0)
    values = _random(40, 40)
    # 39 diagonals fitted to 780 pairs: 38/779 of the variance by chance
    r2 = [compute_toeplitz_r2(torch.triu(values.roll(k, 0), 1)) for k in range(20)]
    assert float(np.mean(r2)) == pytest.approx(38 / 779, abs=0.02)


def test_the_diagonal_of_ones_is_left_out() -> None:
    """With it random vectors score high."""
    rows = _random(40, 30)
    unit = rows / rows.norm(dim=-1, keepdim=True)
    cosines = unit @ unit.T
    other = cosines.clone().fill_diagonal_(100.0)
    assert compute_toeplitz_r2(cosines) == compute_toeplitz_r2(other) < 0.15


@pytest.mark.parametrize(("share", "count"), [(0.1, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (1.0, 4)])
def test_as_many_values_as_reach_the_share(share: float, count: int) -> None:
    assert count_leading(torch.tensor([5.0, 3.0, 1.5, 0.5]), share) == count


def test_participation_counts_directions_of_equal_variance() -> None:
    corners = torch.cat([torch.eye(5), -torch.eye(5)]).double()
    assert compute_participation(corners) == pytest.approx(5)
    assert compute_participation(torch.arange(9.0)[:, None] * torch.ones(1, 4)) == pytest.approx(1)
    low_rank = _random(400, 3) @ torch.linalg.qr(_random(20, 3, seed=1)).Q.T
    assert compute_participation(low_rank) == pytest.approx(3, abs=0.1)
    with pytest.raises(ValueError, match="9 equal rows have no direction to vary in"):
        compute_participation(torch.full((9, 4), 0.1))


@pytest.mark.parametrize(("rows", "width"), [(512, 512), (11, 64)])
def test_random_rows_fill_what_marchenko_and_pastur_say(rows: int, width: int) -> None:
    assert compute_random_participation(rows, width) == pytest.approx(rows * width / (rows + width), rel=0.1)


def _hands(speeds: list[float], rows: int = 64) -> torch.Tensor:
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * torch.tensor(speeds, dtype=torch.float64)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


@pytest.mark.parametrize("halves", [False, True])
def test_periods_are_read_far_beyond_the_table(halves: bool) -> None:
    rows = _hands([1.0, 0.1, 1e-4])
    rows = torch.cat([rows[:, 0::2], rows[:, 1::2]], dim=1) if halves else rows
    hands = read_exact_hands(rows)
    assert hands.periods == pytest.approx([2 * math.pi, 20 * math.pi, 2e4 * math.pi])
    assert hands.pairs[0] == ((0, 3) if halves else (0, 1)) and hands.zero_pairs == 0


@pytest.mark.parametrize("kind", ["one pair is noise", "an odd column", "zero", "a speed that varies"])
def test_any_other_table_has_none(kind: str) -> None:
    rows = _hands([1.0, 0.1])
    if kind == "one pair is noise":
        rows[:, 2:] = torch.randn(64, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    elif kind == "an odd column":
        rows = rows[:, :3]
    elif kind == "zero":
        rows = 0 * rows
    else:
        angle = 0.3 * torch.arange(64.0) + torch.sin(torch.arange(64.0) / 9)
        rows[:, :2] = torch.stack([angle.sin(), angle.cos()], dim=-1)
    assert read_exact_hands(rows).periods == ()


def test_a_period_has_no_direction() -> None:
    orbit = _hands([0.4])
    for rows in (orbit, orbit.flip(-1)):
        assert read_exact_hands(rows).periods == pytest.approx((5 * math.pi,))
    assert read_exact_hands(_hands([0.0])).periods == (), "it stands still"
