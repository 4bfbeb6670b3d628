"""Learned tables of positions made longer: stretched by interpolation, tiled, held at the last row, extrapolated."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from clockhands.shapes import Float, Tensor

__all__ = ["STRETCHES", "continue_rows", "fit_step", "stretch_table"]

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
    step_DD = fit_step(centred_PD[:-1], centred_PD[1:])
    return continue_rows(centred_PD, rows, step_DD, centred_PD.norm(dim=1).max()) + mean_D


def fit_step(before_ND: Float[Tensor, "N D"], after_ND: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """Return the linear map that best takes rows to those that come after them, by least squares with ``RIDGE``."""
    gram_DD = before_ND.T @ before_ND
    ridge_DD = RIDGE * gram_DD.diagonal().mean() * torch.eye(len(gram_DD), dtype=gram_DD.dtype, device=gram_DD.device)
    return torch.linalg.solve(gram_DD + ridge_DD, before_ND.T @ after_ND)


def continue_rows(
    rows_PD: Float[Tensor, "P D"], rows: int, step_DD: Float[Tensor, "D D"], longest: Float[Tensor, ""]
) -> Float[Tensor, "R D"]:
    """Continue centred rows by a linear map, each no longer than ``longest``."""
    continued = [rows_PD[-1]]
    for _ in range(rows - len(rows_PD)):
        row_D = continued[-1] @ step_DD
        continued.append(row_D * torch.clamp(longest / row_D.norm().clamp(min=1e-12), max=1.0))
    return torch.cat([rows_PD, torch.stack(continued[1:]) if len(continued) > 1 else rows_PD[:0]])


STRETCHES: dict[str, tuple[str, Callable[[Tensor, int], Tensor]]] = {
    "interpolated": ("the trained rows stretched over all positions", _interpolate),
    "tiled": ("the trained rows again and again", _tile),
    "held": ("the last trained row for all positions after it", _hold),
    "extrapolated": ("the trained rows continued by a linear map", _extrapolate),
}
"""What each way does, and the function that does it."""
