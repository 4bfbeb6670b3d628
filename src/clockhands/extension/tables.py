"""Learned tables of positions made longer: stretched by interpolation, tiled, held at the last row, extrapolated."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from clockhands.shapes import Float, Tensor

__all__ = ["STRETCHES", "stretch_table"]

RIDGE = 1e-3
"""Of the map from a row to the next, as a share of the rows' mean square."""


def stretch_table(table_PD: Float[Tensor, "P D"], rows: int, way: str) -> Float[Tensor, "R D"]:
    """Return a table of ``rows`` rows made of a shorter one; ``way``: a key of ``STRETCHES``."""
    return STRETCHES[way][1](table_PD, rows)


def _interpolate(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Stretch the trained rows evenly over all, linearly between neighbours; the ends stay the ends."""
    return F.interpolate(table_PD.T[None], size=rows, mode="linear", align_corners=True)[0].T


def _tile(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Repeat the trained rows from the first on."""
    return table_PD.repeat(-(-rows // len(table_PD)), 1)[:rows]


def _hold(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Repeat the last trained row."""
    return torch.cat([table_PD, table_PD[-1:].expand(rows - len(table_PD), -1)])


def _extrapolate(table_PD: Float[Tensor, "P D"], rows: int) -> Float[Tensor, "R D"]:
    """Go on by the linear map that best takes each trained row to the next; norms stay within the trained ones."""
    table_PD = table_PD.double()
    mean_D = table_PD.mean(0)
    centred_PD = table_PD - mean_D
    before, after = centred_PD[:-1], centred_PD[1:]
    gram_DD = before.T @ before
    ridge_DD = RIDGE * gram_DD.diagonal().mean() * torch.eye(len(gram_DD), dtype=gram_DD.dtype, device=gram_DD.device)
    step_DD = torch.linalg.solve(gram_DD + ridge_DD, before.T @ after)
    longest = centred_PD.norm(dim=1).max()
    continued = [centred_PD[-1]]
    for _ in range(rows - len(table_PD)):
        row_D = continued[-1] @ step_DD
        continued.append(row_D * torch.clamp(longest / row_D.norm().clamp(min=1e-12), max=1.0))
    more_RD = torch.stack(continued[1:]) if len(continued) > 1 else centred_PD[:0]
    return torch.cat([centred_PD, more_RD]) + mean_D


STRETCHES: dict[str, tuple[str, Callable[[Tensor, int], Tensor]]] = {
    "interpolated": ("the trained rows stretched over all positions", _interpolate),
    "tiled": ("the trained rows again and again", _tile),
    "held": ("the last trained row for all positions after it", _hold),
    "extrapolated": ("the trained rows continued by a linear map", _extrapolate),
}
"""What each way does, and the function that does it."""
