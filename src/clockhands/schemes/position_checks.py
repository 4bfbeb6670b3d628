"""Refusal of what is not positions, and of positions that a table of a scheme does not hold."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.errors import PositionError, show_value
from clockhands.shapes import Num, Tensor

MAKE = "make them with clockhands.positions, as in count_up(batch, tokens)"


def check_position_tensor(pos: Any, what: str) -> Tensor:
    """Return positions as they are, or [S] as [1, S]. Raises PositionError for what is no tensor of numbers."""
    if not isinstance(pos, Tensor):
        raise PositionError(f"{what} must be a tensor [batch, tokens], and this is {show_value(pos)}; {MAKE}")
    if pos.dim() == 1:
        return pos[None]
    if pos.dim() not in (2, 3, 4) or pos.dtype == torch.bool or pos.is_complex():
        kind = f"{list(pos.shape)} of {pos.dtype}"
        raise PositionError(f"{what} must be numbers [batch, tokens], and these are {kind}; {MAKE}")
    return pos


def check_encoded_positions(scheme: Any, pos: Any) -> Tensor:
    """Return positions for ``encode``, [S] as [1, S]. Raises PositionError for embeddings in their place."""
    pos = check_position_tensor(pos, f"the positions of {type(scheme).__name__}.encode")
    if pos.dim() == 3 and pos.is_floating_point() and pos.shape[-1] > 4:
        promise = scheme.declares
        if promise.axes is not None and pos.shape[-1] != promise.axes and not promise.more_axes:
            raise PositionError(
                f"{type(scheme).__name__}.encode takes positions [batch, tokens], and {list(pos.shape)} looks like "
                f"embeddings; write x + scheme.encode(pos), or Positioning(scheme).embed(x, pos)"
            )
    return pos


def check_length(pos: Num[Tensor, "*any"], maximum: int, scheme: str, option: str = "max_length") -> None:
    """Raise PositionError if a position is negative or past the table. Skipped while tracing (no value is known)."""
    if torch.compiler.is_compiling() or pos.numel() == 0:
        return
    low, high = int(pos.min()), int(pos.max())
    if low < 0 or high >= maximum:
        bad = low if low < 0 else high
        raise PositionError(
            f"position {bad} is outside the {maximum} positions of {scheme}; shorten the text, raise {option}, "
            f"or choose a scheme that extrapolates"
        )


def check_integer(pos: Num[Tensor, "*any"], scheme: str) -> None:
    """Raise PositionError for real-valued positions, which a table cannot hold."""
    if pos.is_floating_point():
        raise PositionError(
            f"{scheme} looks positions up in a table, and these are real numbers ({pos.dtype}); "
            f"choose a scheme that declares real_valued, or a transform that keeps integers"
        )
