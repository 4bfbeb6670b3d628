"""Sines and cosines: what a step along the table is, how alike its rows are, and which hands come round."""

from __future__ import annotations

import math

import torch

from clockhands.schemes.frequencies import compute_frequencies
from clockhands.shapes import Float, Tensor
from exact.added import WIDTH, Numbers, make_rows


def rotate_rows(rows_ND: Float[Tensor, "N D"], step: int) -> Float[Tensor, "N D"]:
    """Return rows of the sinusoid after a rotation of every pair by its own angle, ``step`` times its frequency."""
    angles_F = step * compute_frequencies(rows_ND.shape[1], 10000.0)
    sine_NF, cosine_NF = rows_ND[:, 0::2], rows_ND[:, 1::2]
    stepped = (
        sine_NF * angles_F.cos() + cosine_NF * angles_F.sin(),
        cosine_NF * angles_F.cos() - sine_NF * angles_F.sin(),
    )
    return torch.stack(stepped, dim=-1).flatten(1)


def measure_shift() -> Numbers:
    """Return the largest error of a step of 1 to 64 as a rotation."""
    rows = make_rows(WIDTH, 576)
    steps = range(1, 65)
    return {
        "error": max(float((rotate_rows(rows[:512], step) - rows[step : step + 512]).abs().max()) for step in steps)
    }


def measure_similarity() -> Numbers:
    """Return the cosine of two rows of 512 channels by their distance, and the length of a row."""
    rows = make_rows(WIDTH, 512)
    values: Numbers = {f"at {distance}": _cosine(rows[0], rows[distance]) for distance in (1, 10, 100)}
    return {**values, "length": float(rows[5].norm())}


def _cosine(first: Tensor, second: Tensor) -> float:
    return float(first @ second / first.norm() / second.norm())


def count_hands() -> Numbers:
    """Return the wavelengths of the 256 hands of 512 channels, and how many hands do not come round once."""
    values: Numbers = {}
    lengths_F = 2 * math.pi / compute_frequencies(WIDTH, 10000.0)
    values |= {"hands": len(lengths_F), "shortest": float(lengths_F.min()), "longest": float(lengths_F.max())}
    for length in (50, 512, 5000):
        values[f"never round in {length}"] = int((lengths_F > length).sum())
    for base in (10, 100, 10_000, 1_000_000):
        longer = 2 * math.pi / compute_frequencies(WIDTH, float(base))
        values[f"never round in 512, base {base}"] = int((longer > 512).sum())
        values[f"nearest rows, base {base}"] = _find_nearest(base)
    return values


def _find_nearest(base: float) -> float:
    """The smallest distance of two different rows among 512, over the length of a row."""
    rows = make_rows(WIDTH, 512, float(base))
    apart = torch.cdist(rows, rows).fill_diagonal_(math.inf)
    return float(apart.min() / rows[0].norm())


def measure_orthogonality() -> Numbers:
    """Return how far the 512 channels are from orthogonal over 512 positions: cosines of all pairs of channels."""
    rows = make_rows(WIDTH, 512)
    unit = rows / rows.norm(dim=0)
    cosines = (unit.T @ unit).abs()[tuple(torch.triu_indices(rows.shape[1], rows.shape[1], 1))]
    return {
        "above 0.9": 100 * float((cosines > 0.9).double().mean()),
        "below 0.1": 100 * float((cosines < 0.1).double().mean()),
    }


def measure_stretch() -> Numbers:
    """Return the length of a row half way between two neighbours, over theirs: by hand and of a row of 512 channels.

    The mean of two unit vectors that are ω apart has the length cos(ω/2).
    """
    rows = make_rows(WIDTH, 512)
    between = (rows[:-1] + rows[1:]) / 2
    hands_F = between.unflatten(1, (-1, 2)).norm(dim=2).mean(0)
    return {
        "fastest": float(hands_F[0]),
        "of 60 tokens": math.cos(math.pi / 60),
        "row": float(between.norm(dim=1).mean() / rows.norm(dim=1).mean()),
    }
