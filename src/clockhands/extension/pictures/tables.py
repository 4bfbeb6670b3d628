"""A grid of learned positions made larger: stretched by interpolation, tiled, held at its edge, extrapolated."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from clockhands.extension.tables import continue_rows, fit_step
from clockhands.shapes import Float, Tensor

__all__ = ["GRIDS", "stretch_grid"]


def stretch_grid(grid_HWD: Float[Tensor, "H W D"], side: int, way: str) -> Float[Tensor, "S S D"]:
    """Return a grid of ``side`` × ``side`` positions made of a smaller one; ``way``: a key of ``GRIDS``."""
    return GRIDS[way][1](grid_HWD, side)


def _interpolate(grid_HWD: Float[Tensor, "H W D"], side: int) -> Float[Tensor, "S S D"]:
    """Stretch by cubic interpolation, as ``interpolate_pos_encoding`` of transformers does."""
    grid_1DHW = grid_HWD.permute(2, 0, 1)[None]
    return F.interpolate(grid_1DHW, size=(side, side), mode="bicubic", align_corners=False)[0].permute(1, 2, 0)


def _tile(grid_HWD: Float[Tensor, "H W D"], side: int) -> Float[Tensor, "S S D"]:
    """Repeat the trained grid from its first corner on."""
    rows, columns = (torch.arange(side, device=grid_HWD.device) % size for size in grid_HWD.shape[:2])
    return grid_HWD[rows][:, columns]


def _hold(grid_HWD: Float[Tensor, "H W D"], side: int) -> Float[Tensor, "S S D"]:
    """Repeat the last row and the last column."""
    rows, columns = (torch.arange(side, device=grid_HWD.device).clamp(max=size - 1) for size in grid_HWD.shape[:2])
    return grid_HWD[rows][:, columns]


def _extrapolate(grid_HWD: Float[Tensor, "H W D"], side: int) -> Float[Tensor, "S S D"]:
    """Go on downwards and then to the right, each by the linear map that best takes a trained row to the next."""
    grid_HWD = grid_HWD.double()
    mean_D = grid_HWD.mean((0, 1))
    taller_HWD = _continue(grid_HWD - mean_D, side)
    return _continue(taller_HWD.transpose(0, 1), side).transpose(0, 1) + mean_D


def _continue(grid_HWD: Float[Tensor, "H W D"], side: int) -> Float[Tensor, "S W D"]:
    """Continue all columns of a centred grid downwards by one linear map."""
    columns_WHD = grid_HWD.transpose(0, 1)
    step_DD = fit_step(columns_WHD[:, :-1].flatten(0, 1), columns_WHD[:, 1:].flatten(0, 1))
    longest = grid_HWD.norm(dim=-1).max()
    return torch.stack([continue_rows(column_HD, side, step_DD, longest) for column_HD in columns_WHD], dim=1)


GRIDS: dict[str, tuple[str, Callable[[Tensor, int], Tensor]]] = {
    "interpolated": ("the trained grid stretched over the larger one", _interpolate),
    "tiled": ("the trained grid again and again", _tile),
    "held": ("the last row and column for all positions after them", _hold),
    "extrapolated": ("the trained grid continued by a linear map", _extrapolate),
}
"""What each way does, and the function that does it."""
