"""Hands of computed sinusoids are read from their columns; other tables have none."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.inspection.estimators.exact_hands import read_exact_hands, read_period


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


def test_pairs_of_zeros_are_counted_and_hide_no_hand() -> None:
    rows = _hands([1.0, 0.1, 0.01])
    rows[:, 2:4] = 0
    hands = read_exact_hands(rows)
    assert hands.periods == pytest.approx([2 * math.pi, 200 * math.pi]) and hands.zero_pairs == 1


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
    assert read_period(orbit) == read_period(orbit.flip(-1)) == pytest.approx(5 * math.pi)
    assert read_period(_hands([0.0])) is None, "it stands still"
