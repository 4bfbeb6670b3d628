"""Compare what was read with what was meant: within a tolerance, by one factor, less a constant; and name numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def size_of(x: Tensor) -> float:
    """Return the largest absolute value."""
    return float(x.abs().max())


def varies(x: Tensor, axis: int, share: float = 1e-4, size: float | None = None) -> bool:
    """Whether vectors are further from the first along an axis than this share of their size."""
    gap = size_of(x - x.narrow(axis, 0, 1))
    return gap > share * (size_of(x) if size is None else size)


def is_near(ours: Tensor, other: Tensor, size: float, tolerance: float = 1e-3) -> bool:
    """Whether no value differs by this share of ``size``, or more."""
    return size_of(ours - other) < tolerance * size


def find_factor(ours: Tensor, other: Tensor, size: float, tolerance: float = 1e-3) -> float | None:
    """How many times the other ours is, by least squares; None where no one factor gives it."""
    factor = float((ours * other).sum() / other.square().sum().clamp(min=1e-12))
    return factor if is_near(ours, factor * other, size, tolerance) else None


def find_ratio(ours: Tensor, other: Tensor, tolerance: float = 1e-3) -> float | None:
    """How many times the other ours is, value by value; None where that is not one number."""
    ratios = ours / other
    ratio = float(ratios.mean())
    return ratio if size_of(ratios - ratio) < tolerance * abs(ratio) else None


def centre(x_HST: Tensor, allowed_ST: Tensor) -> Tensor:
    """Take from each row the mean of what is allowed in it: a softmax does not see it. The rest is 0."""
    kept = torch.where(allowed_ST, x_HST, 0.0)
    return torch.where(allowed_ST, kept - kept.sum(-1, keepdim=True) / allowed_ST.sum(-1, keepdim=True).clamp(min=1), 0)


def make_distances(allowed_ST: Tensor) -> Tensor:
    """Return how far behind its query each key is, [S, T]; negative before it."""
    queries, keys = (torch.arange(length, device=allowed_ST.device) for length in allowed_ST.shape)
    return keys - queries[:, None]


def wrap(angle: Tensor) -> Tensor:
    """Return the angle less whole turns, from -π to π."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def list_numbers(values: Tensor, most: int = 5, digits: int = 4) -> str:
    """Return the first values in words."""
    return ", ".join(f"{float(x):.{digits}g}" for x in values[:most]) + (" ..." if len(values) > most else "")
