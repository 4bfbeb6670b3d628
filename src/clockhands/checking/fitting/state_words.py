"""Say how what enters the first block is wrong: the vectors of position, and the size of tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clockhands.checking.fitting.place_words import describe_places
from clockhands.checking.fitting.rotation import find_base, fit_speeds

_TOLERANCE = 1e-3


def differ(ours_BSD: Tensor, theirs_BSD: Tensor) -> bool:
    """Whether two first states differ."""
    return float((ours_BSD - theirs_BSD).abs().max()) > 1e-4 * float(theirs_BSD.abs().max())


def describe_entry(ours_BSD: Tensor, theirs_BSD: Tensor) -> list[str]:
    """Return what differs from a reference's first states as sentences about the model; empty if it has no words."""
    ours, theirs = ours_BSD.double(), theirs_BSD.double()
    mine, wanted = ours - ours.mean(0), theirs - theirs.mean(0)
    scale, size = float((mine * wanted).sum() / wanted.square().sum()), float(theirs.abs().max())
    if not _near(mine, scale * wanted, size):
        return []
    if abs(scale - 1) < 1e-3:
        return _describe_rows(ours.mean(0), theirs.mean(0), size)
    mine, wanted = ((x - x[:, :1]).mean(0) for x in (ours, theirs))  # the tokens, of another size, drop out
    rows = [] if _near(mine, wanted, size) else _describe_vectors(mine, wanted, size)
    return [] if rows is None else [name_scale(scale, ours.shape[-1]), *rows]


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


def _describe_rows(ours_SD: Tensor, theirs_SD: Tensor, size: float) -> list[str]:
    """Compare the vectors of position, beside tokens that are the same."""
    places = torch.arange(len(ours_SD), device=ours_SD.device)
    gaps = (ours_SD[:, None] - theirs_SD[None]).abs().amax(-1)
    rows, exact = gaps.argmin(1), gaps.amin(1) < _TOLERANCE * size
    if _near(ours_SD, ours_SD[:1].expand_as(ours_SD), size):
        return [f"puts every token at position {int(rows[0])}" if exact.all() else "adds no positions"]
    by = (rows - places)[exact].unique()
    if len(by) == 1 and int(by) and int((~exact).sum()) <= abs(int(by)):
        return [f"gives position p the reference's vector of p {'+' if int(by) > 0 else '−'} {abs(int(by))}"]
    if exact.all():
        return [describe_places({"meant": places, "stood": rows})]
    return _describe_vectors(ours_SD - ours_SD[:1], theirs_SD - theirs_SD[:1], size) or []


def _describe_vectors(mine: Tensor, wanted: Tensor, size: float) -> list[str] | None:
    """Other vectors of position: another size, another order of channels, another base of sinusoids."""
    ratio = float((mine * wanted).sum() / (wanted * wanted).sum().clamp(min=1e-12))
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
    bases = [_find_sinusoid_base(rows) for rows in (mine, wanted)]
    if bases[0] and bases[1] and bases[0] != bases[1]:
        return [f"has sinusoids of base {bases[0]:,.6g}, not {bases[1]:,.6g}"]
    return None


def _find_sinusoid_base(rows_SD: Tensor) -> float | None:
    angles = find_sinusoids(rows_SD)
    return None if angles is None else find_base(fit_speeds(angles), angles)


def find_sinusoids(rows_SD: Tensor) -> Tensor | None:
    """Return the angles [S, C] since the first row, of rows of sinusoids less that row; None if they are none.

    A sine and its cosine, less their values at 0, are the two sides of a circle.
    """
    width = rows_SD.shape[-1]
    for pairs in (torch.arange(width).view(-1, 2), torch.arange(width).view(2, -1).T) if width % 2 == 0 else ():
        sines, cosines = rows_SD[:, pairs[:, 0]], rows_SD[:, pairs[:, 1]] + 1
        if float((sines.square() + cosines.square() - 1).abs().max()) < 1e-3:
            return torch.atan2(sines, cosines)
    return None
