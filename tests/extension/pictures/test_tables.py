"""Larger grids: what each way makes of grids that are known."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from clockhands.extension.pictures.tables import GRIDS, stretch_grid

GRID = torch.arange(9.0).reshape(3, 3, 1)


def test_tiled_and_held_repeat_rows_and_columns() -> None:
    assert stretch_grid(GRID, 4, "tiled")[..., 0].tolist() == [[0, 1, 2, 0], [3, 4, 5, 3], [6, 7, 8, 6], [0, 1, 2, 0]]
    assert stretch_grid(GRID, 4, "held")[..., 0].tolist() == [[0, 1, 2, 2], [3, 4, 5, 5], [6, 7, 8, 8], [6, 7, 8, 8]]
    for way in GRIDS:
        assert stretch_grid(GRID, 5, way).shape == (5, 5, 1)
        torch.testing.assert_close(stretch_grid(GRID, 3, way).float(), GRID)


def test_interpolation_is_torchs_over_both_axes() -> None:
    grid_HWD = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(0))
    one_by_one = torch.stack(
        [F.interpolate(grid_HWD[None, None, ..., d], (7, 7), mode="bicubic")[0, 0] for d in range(6)], dim=-1
    )
    torch.testing.assert_close(stretch_grid(grid_HWD, 7, "interpolated"), one_by_one)


def test_waves_over_both_axes_go_on_as_they_began() -> None:
    place = torch.arange(46.0)
    across, down = (
        torch.cat([(place[:, None] * w).cos(), (place[:, None] * w).sin()], 1)
        for w in (torch.tensor([0.9, 0.5]), torch.tensor([0.8, 0.6]))
    )
    wave = torch.cat([down[:, None].expand(-1, 46, -1), across[None].expand(46, -1, -1)], dim=-1)
    continued = stretch_grid(wave[:40, :40], 46, "extrapolated").float()
    torch.testing.assert_close(continued[:40, :40], wave[:40, :40])
    assert (continued - wave).abs().max() < 0.15, "waves of amplitude 1"
