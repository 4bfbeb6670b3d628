"""Longer tables: what each way makes of rows that are known."""

from __future__ import annotations

import torch

from clockhands.extension.tables import STRETCHES, stretch_table

TABLE = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])


def test_the_ways_on_a_straight_line() -> None:
    assert stretch_table(TABLE, 5, "interpolated")[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert stretch_table(TABLE, 5, "tiled")[:, 0].tolist() == [0, 2, 4, 0, 2]
    assert stretch_table(TABLE, 5, "held")[:, 0].tolist() == [0, 2, 4, 4, 4]
    for name in STRETCHES:
        assert stretch_table(TABLE, 5, name).shape == (5, 2)


def test_a_wave_goes_on_as_it_began() -> None:
    angle_P1 = torch.arange(80.0)[:, None] * torch.tensor([0.9, 0.3, 0.1])
    wave_PD = torch.cat([angle_P1.cos(), angle_P1.sin()], 1)
    continued = stretch_table(wave_PD[:60], 80, "extrapolated")
    torch.testing.assert_close(continued[:60].float(), wave_PD[:60])
    assert (continued[60:] - wave_PD[60:]).abs().max() < 0.1
