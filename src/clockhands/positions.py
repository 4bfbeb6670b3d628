"""Positions as data: the one place that makes them. No scheme calls ``arange`` or guesses an offset.

A position tensor is ``[B, S]``, or ``[B, S, A]`` with several coordinates for each token (row and column, time, height
and width). Integers count tokens; floats are real-valued times or stretched counts. Padding gets position 0: it is
masked away, and 0 is inside every table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from clockhands.errors import PositionError
from clockhands.shapes import Bool, Float, Int, Num, Tensor

Mask = Bool[Tensor, "B S"] | Int[Tensor, "B S"]


def sequential(
    batch: int, length: int, *, start: int = 0, device: torch.device | str | None = None
) -> Int[Tensor, "B S"]:
    """start, start + 1, ... in every row: text without padding, or its continuation after ``start`` cached tokens."""
    return torch.arange(start, start + length, device=device).expand(batch, length)


def from_mask(mask_BS: Mask) -> Int[Tensor, "B S"]:
    """Count the real tokens (mask 1) of each row from 0, with padding left, right or in between."""
    counted_BS = mask_BS.long().cumsum(dim=-1) - 1
    return counted_BS.clamp(min=0) * mask_BS.long()


def continued(mask_BT: Mask, new: int) -> Int[Tensor, "B S"]:
    """Positions of the last ``new`` tokens when ``mask_BT`` covers the cached tokens and the new ones."""
    if not 0 < new <= mask_BT.shape[-1]:
        raise PositionError(
            f"{new} new tokens do not fit a mask of {mask_BT.shape[-1]}; pass the mask of the cached and the new tokens"
        )
    return from_mask(mask_BT)[:, -new:]


def packed(documents_BS: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """Count from 0 again where the document number changes along a row (several documents packed into one row)."""
    index_BS = sequential(*documents_BS.shape, device=documents_BS.device)
    starts_BS = torch.ones_like(documents_BS, dtype=torch.bool)
    starts_BS[:, 1:] = documents_BS[:, 1:] != documents_BS[:, :-1]
    return index_BS - torch.where(starts_BS, index_BS, 0).cummax(dim=-1).values


def same_document(documents_BS: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """The mask that packing needs besides the positions: True where two tokens are of one document."""
    return documents_BS[:, :, None] == documents_BS[:, None, :]


def shifted(pos_BS: Num[Tensor, "B S *A"], offset: int | Num[Tensor, " B"]) -> Num[Tensor, "B S *A"]:
    """Add one offset to all positions of a row: SHAPE (Kiyono et al. 2021, section 3)."""
    if isinstance(offset, int):
        return pos_BS + offset
    return pos_BS + offset.reshape(-1, *[1] * (pos_BS.dim() - 1))


def random_shift(
    pos_BS: Num[Tensor, "B S *A"], maximum: int, generator: torch.Generator | None = None
) -> Num[Tensor, "B S *A"]:
    """SHAPE in training: one k from {0, ..., maximum} for each row."""
    if maximum < 0:
        raise PositionError(f"the largest shift is {maximum}; it must be 0 or more")
    offset_B = torch.randint(0, maximum + 1, (pos_BS.shape[0],), generator=generator)
    return shifted(pos_BS, offset_B.to(pos_BS.device))


def randomised(
    pos_BS: Int[Tensor, "B S"], maximum: int, generator: torch.Generator | None = None
) -> Int[Tensor, "B S"]:
    """Replace position p by the p-th smallest of a random subset of {0, ..., maximum - 1} (Ruoss et al. 2023).

    The subset has as many members as the longest row counts, is drawn without replacement, once for the batch, and is
    used at test time as well as in training. Raises PositionError if ``maximum`` is smaller than the length.
    """
    length = int(pos_BS.max()) + 1
    if maximum < length:
        raise PositionError(f"{length} tokens cannot take distinct positions below {maximum}; raise the maximum")
    subset_S = torch.randperm(maximum, generator=generator)[:length].sort().values.to(pos_BS.device)
    return subset_S[pos_BS]


def cape(
    pos_BS: Num[Tensor, "B S"],
    *,
    max_global_shift: float = 5.0,
    max_local_shift: float = 0.5,
    max_scale: float = 1.03,
    generator: torch.Generator | None = None,
    mask_BS: Mask | None = None,
) -> Float[Tensor, "B S"]:
    """CAPE's augmentation (Likhomanenko et al. 2021, section 3): (p - mean + Δ + ε_p)·λ, for training only.

    Δ ~ U(-max_global_shift, max_global_shift) for each row, ε_p ~ U(-max_local_shift, max_local_shift) for each token,
    log λ ~ U(-log max_scale, log max_scale) for each row. With ``max_local_shift`` of at most 0.5 order is kept.
    """
    if max_scale < 1.0 or max_global_shift < 0 or max_local_shift < 0:
        raise PositionError(
            f"CAPE needs max_scale >= 1 and shifts >= 0; got {max_scale}, {max_global_shift} and {max_local_shift}"
        )
    batch, device = pos_BS.shape[0], pos_BS.device

    def uniform(*shape: int) -> Tensor:
        return (torch.rand(*shape, generator=generator) * 2 - 1).to(device)

    jitter = uniform(batch, 1) * max_global_shift + uniform(*pos_BS.shape) * max_local_shift
    return (centred(pos_BS, mask_BS) + jitter) * torch.exp(uniform(batch, 1) * math.log(max_scale))


def centred(pos_BS: Num[Tensor, "B S"], mask_BS: Mask | None = None) -> Float[Tensor, "B S"]:
    """Subtract each row's mean position over its real tokens: how CAPE reads positions when it does not train."""
    pos = pos_BS.float()
    weight = torch.ones_like(pos) if mask_BS is None else mask_BS.float()
    return pos - (pos * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=1)


def scaled(pos_BS: Num[Tensor, "B S *A"], factor: float) -> Float[Tensor, "B S *A"]:
    """Position interpolation (Chen et al. 2023, equation 4): p / factor, so that longer texts fit."""
    if factor <= 0:
        raise PositionError(f"positions are divided by the factor, which is {factor}; it must be above 0")
    return pos_BS.double() / factor if pos_BS.dtype == torch.float64 else pos_BS.float() / factor


def real_valued(times: Sequence[Sequence[float]] | Num[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Measured times as positions, in float64. Raises PositionError on NaN or infinity."""
    pos_BS = torch.as_tensor(times, dtype=torch.float64)
    if not bool(torch.isfinite(pos_BS).all()):
        raise PositionError("a time is NaN or infinite; every token needs a finite one (mask the others away)")
    return pos_BS


def grid(batch: int, *lengths: int, device: torch.device | str | None = None) -> Int[Tensor, "B S A"]:
    """Several coordinates: every cell of a grid (rows, columns, ...), the last axis running fastest."""
    if not lengths or min(lengths) < 1:
        raise PositionError(f"a grid needs one or more lengths of at least 1; got {lengths}")
    axes = [torch.arange(length, device=device) for length in lengths]
    cells_SA = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(lengths))
    return cells_SA.expand(batch, *cells_SA.shape)
