"""Say how what enters the first block differs from the reference's: positions, and the size of tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clockhands.checking.fitting.rotation import fit_speeds
from clockhands.checking.fitting.rotation_words import describe_places

_TOLERANCE = 1e-3


def differ(ours_BSD: Tensor, theirs_BSD: Tensor) -> bool:
    """Whether two first states differ."""
    return float((ours_BSD - theirs_BSD).abs().max()) > 1e-4 * float(theirs_BSD.abs().max())


def describe_entry(ours_BSD: Tensor, theirs_BSD: Tensor) -> list[str] | None:
    """Return what differs as sentences about the model; None if the difference has no description."""
    ours, theirs = ours_BSD.double(), theirs_BSD.double()
    scale = float(((ours - ours.mean(0)) * (theirs - theirs.mean(0))).sum() / (theirs - theirs.mean(0)).square().sum())
    size = float(theirs.abs().max())
    if not _near(ours - ours.mean(0), scale * (theirs - theirs.mean(0)), size):
        return None
    said = [] if abs(scale - 1) < 1e-3 else [name_scale(scale, ours.shape[-1])]
    rows = _describe_rows(ours, theirs, size, unscaled=not said)
    return None if rows is None else [*said, *rows] or None


def _near(ours: Tensor, other: Tensor, size: float) -> bool:
    return float((ours - other).abs().max()) < _TOLERANCE * size


def name_scale(scale: float, width: int) -> str:
    """Say that tokens are ``scale`` times as large as the reference's."""
    root = math.sqrt(width)
    if abs(scale * root - 1) < 1e-3:
        return f"does not multiply its tokens by √{width}"
    if abs(scale / root - 1) < 1e-3:
        return f"multiplies its tokens by √{width}, the reference not"
    return f"has tokens {scale:.4g} times as large"


def _describe_rows(ours: Tensor, theirs: Tensor, size: float, unscaled: bool) -> list[str] | None:
    """Compare the rows of positions, by their difference from the first place's (the tokens then drop out)."""
    mine, wanted = ((x - x[:, :1]).mean(0) for x in (ours, theirs))
    if float(wanted.abs().max()) < 1e-4 * size and float(mine.abs().max()) < 1e-4 * size:
        return []
    if unscaled and float(mine.abs().max()) < 1e-4 * size:
        places = [p for p in range(theirs.shape[1]) if _near(ours[:, 0], theirs[:, p], size)]
        return [f"puts every token at position {places[0]}"] if places else ["adds no positions"]
    if _near(mine, wanted, size):
        return [] if not unscaled or _near(ours, theirs, size) else None
    moved = _find_moved(ours, theirs, size) if unscaled else None
    return moved or _describe_vectors(mine, wanted, size)


def _find_moved(ours: Tensor, theirs: Tensor, size: float) -> list[str] | None:
    """The row of the reference's table that each place has."""
    length = ours.shape[1]
    for by in (offset for n in range(1, 9) for offset in (n, -n)):
        kept = range(max(0, -by), min(length, length - by))
        if all(_near(ours[:, p], theirs[:, p + by], size) for p in kept):
            return [f"gives position p the reference's vector of p {'+' if by > 0 else '−'} {abs(by)}"]
    gaps = (ours.mean(0)[:, None] - theirs.mean(0)[None]).abs().amax(-1)
    if float(gaps.amin(1).max()) > _TOLERANCE * size:
        return None
    return [describe_places([int(row) for row in gaps.argmin(1)])]


def _describe_vectors(mine: Tensor, wanted: Tensor, size: float) -> list[str] | None:
    """Other vectors of position: another size, another order of channels, another base of sinusoids."""
    ratio = float((mine * wanted).sum() / (wanted * wanted).sum())
    if _near(mine, ratio * wanted, size):
        return [f"has positions {ratio:.4g} times as large"]
    width = mine.shape[-1]
    pairs = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
    for order, words in (
        (pairs, "halves, the reference in pairs"),
        (pairs.argsort(), "pairs, the reference in halves"),
    ):
        if _near(mine, wanted[:, order], size):
            return [f"lays sines and cosines out in {words}"]
    swapped = torch.arange(width).view(-1, 2).flip(1).flatten()
    if _near(mine, wanted[:, swapped], size) or _near(mine, wanted.roll(width // 2, -1), size):
        return ["has sines where the reference has cosines"]
    bases = [find_sinusoid_base(rows) for rows in (mine, wanted)]
    if bases[0] and bases[1] and bases[0] != bases[1]:
        return [f"has sinusoids of base {bases[0]:,.6g}, not {bases[1]:,.6g}"]
    return None


def find_sinusoid_base(rows_SD: Tensor) -> float | None:
    """Return the base of rows of sinusoids less their first row, base^(-2c/width); None if they are none.

    A sine and its cosine, less their values at 0, are the two sides of a circle.
    """
    width = rows_SD.shape[-1]
    layouts = (torch.arange(width).view(-1, 2), torch.arange(width).view(2, -1).T)
    for pairs in layouts:
        sines, cosines = rows_SD[:, pairs[:, 0]], rows_SD[:, pairs[:, 1]] + 1
        if float((sines.square() + cosines.square() - 1).abs().max()) > 1e-3:
            continue
        speeds = fit_speeds(torch.atan2(sines, cosines))
        exponents = torch.arange(len(speeds), dtype=torch.float64, device=speeds.device) / len(speeds)
        base = float(speeds[1]) ** (-1 / float(exponents[1]))
        base = float(f"{base:.4g}")
        if float((speeds - base**-exponents).abs().max()) < 1e-4:
            return base
    return None
