"""Refusal of positions that a table of a scheme does not hold."""

from __future__ import annotations

import torch

from clockhands.errors import PositionError
from clockhands.shapes import Num, Tensor

__all__ = ["check_integer", "check_length"]


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
