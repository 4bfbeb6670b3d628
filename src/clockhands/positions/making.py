"""Make positions from masks, documents, times and grids, and change them in simple ways."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch

from clockhands.errors import PositionError, show_value
from clockhands.shapes import Bool, Float, Int, Num, Tensor

TokenMask = Bool[Tensor, "B S"] | Int[Tensor, "B S"]
"""True or 1 at tokens, False or 0 at padding."""


def count_up(
    batch: SupportsIndex, length: SupportsIndex, *, start: int = 0, device: torch.device | str | None = None
) -> Int[Tensor, "B S"]:
    """Return start, start + 1, ... in every row, [B, S]: text without padding, after ``start`` cached tokens.

    Raises PositionError for sizes that are no whole numbers from 0.
    """
    try:  # a number of numpy, or a tensor of one, is a number too
        rows = batch if isinstance(batch, torch.SymInt) else operator.index(batch)
        count = length if isinstance(length, torch.SymInt) else operator.index(length)
    except TypeError:
        rows = count = -1
    if rows < 0 or count < 0:
        raise PositionError(f"count_up takes the number of texts and of tokens, and was given {batch!r} and {length!r}")
    return torch.arange(start, start + count, device=device).expand(rows, count)  # type: ignore[arg-type]


def count_from_mask(mask_BS: TokenMask) -> Int[Tensor, "B S"]:
    """Count the tokens (mask 1) of each row from 0: [B, S]; padding, which may be anywhere, gets 0.

    Raises PositionError for another mask: one of pairs, or numbers that are added to logits.
    """
    if not isinstance(mask_BS, Tensor) or mask_BS.dim() != 2 or mask_BS.is_floating_point():
        kind = f"{list(mask_BS.shape)} of {mask_BS.dtype}" if isinstance(mask_BS, Tensor) else show_value(mask_BS)
        raise PositionError(f"the mask of tokens is {kind}, but must be true or 1 at tokens: [batch, tokens]")
    # A running count of ones; padding before the first would stand at -1.
    counted_BS = mask_BS.long().cumsum(dim=-1) - 1
    return counted_BS.clamp(min=0) * mask_BS.long()


def continue_from_mask(mask_BS: TokenMask, new: int) -> Int[Tensor, "B new"]:
    """Return the positions of the last ``new`` tokens, where ``mask_BS`` covers cached and new ones: [B, new].

    Raises PositionError where the mask has fewer columns than there are new tokens.
    """
    if not 0 < new <= mask_BS.shape[-1]:
        raise PositionError(
            f"{new} new tokens do not fit a mask of {mask_BS.shape[-1]}; pass the mask of the cached and the new tokens"
        )
    return count_from_mask(mask_BS)[:, -new:]


def _check_documents(documents: Any) -> Int[Tensor, "B S"]:
    """Return the number of each token's document, [S] as [1, S]. Raises PositionError for anything else."""
    if not isinstance(documents, Tensor) or documents.dim() not in (1, 2):
        kind = list(documents.shape) if isinstance(documents, Tensor) else show_value(documents)
        raise PositionError(f"numbers of documents are {kind}, but must be a tensor [batch, tokens]")
    return documents if documents.dim() == 2 else documents[None]


def count_packed(documents_BS: Int[Tensor, "*B S"]) -> Int[Tensor, "B S"]:
    """Count the tokens of each of the documents that are packed into a row from 0: [B, S].

    A document begins wherever the number changes along the row. Raises PositionError for what are no such numbers.
    """
    documents_BS = _check_documents(documents_BS)
    index_BS = count_up(*documents_BS.shape, device=documents_BS.device)
    starts_BS = torch.ones_like(documents_BS, dtype=torch.bool)
    starts_BS[:, 1:] = documents_BS[:, 1:] != documents_BS[:, :-1]
    # The running maximum of the places where documents begin is where each token's own began.
    return index_BS - torch.where(starts_BS, index_BS, 0).cummax(dim=-1).values


def make_document_mask(documents_BS: Int[Tensor, "*B S"]) -> Bool[Tensor, "B S S"]:
    """Return which tokens are in the same document, [B, S, S]: the mask that packed documents need."""
    documents_BS = _check_documents(documents_BS)
    return documents_BS[:, :, None] == documents_BS[:, None, :]


def shift(pos: Num[Tensor, "B S *A"], offset: int | Num[Tensor, " B"]) -> Num[Tensor, "B S *A"]:
    """Add one offset to all positions of a row: SHAPE (Kiyono et al. 2021, section 3)."""
    if isinstance(offset, int):
        return pos + offset
    if not isinstance(offset, Tensor):
        raise PositionError(
            f"offset is {show_value(offset)}, but must be a whole number, or a tensor of one for each text"
        )
    return pos + offset.reshape(-1, *[1] * (pos.dim() - 1))


def centre(pos: Num[Tensor, "B S *A"], mask_BS: TokenMask | None = None) -> Float[Tensor, "B S *A"]:
    """Subtract each row's mean position over its tokens, on every axis: how CAPE reads positions after training."""
    pos = pos.float()
    weight = (
        torch.ones_like(pos) if mask_BS is None else mask_BS.reshape(*mask_BS.shape, *[1] * (pos.dim() - 2)).float()
    )
    return pos - (pos * weight).sum(1, keepdim=True) / weight.expand_as(pos).sum(1, keepdim=True).clamp(min=1)


def interpolate(pos: Num[Tensor, "B S *A"], factor: float) -> Float[Tensor, "B S *A"]:
    """Divide positions by a factor, so that longer texts fit: position interpolation (Chen et al. 2023, equation 4).

    Raises PositionError for a factor that is not above 0.
    """
    if not factor > 0:
        raise PositionError(f"positions are divided by the factor, which is {factor}; it must be above 0")
    return pos.double() / factor if pos.dtype == torch.float64 else pos.float() / factor


def read_times(times: Sequence[Sequence[float]] | Num[Tensor, "B S"]) -> Float[Tensor, "B S"]:
    """Return measured times as positions, [B, S], float64. Raises PositionError for NaN or infinity."""
    pos_BS = torch.as_tensor(times, dtype=torch.float64)
    if not bool(torch.isfinite(pos_BS).all()):
        raise PositionError("a time is NaN or infinite; every token needs a finite one (mask the others away)")
    return pos_BS


def make_grid(batch: int, *lengths: int, device: torch.device | str | None = None) -> Int[Tensor, "B S A"]:
    """Return the coordinates of every cell of a grid (rows, columns, ...), [B, S, A]; the last axis runs fastest.

    Raises PositionError for a length below 1.
    """
    if not lengths or min(lengths) < 1:
        raise PositionError(f"a grid needs one or more lengths of at least 1; got {lengths}")
    axes = [torch.arange(length, device=device) for length in lengths]
    cells_SA = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, len(lengths))
    return cells_SA.expand(batch, *cells_SA.shape)


def make_patch_centres(batch: int, *lengths: int, device: torch.device | str | None = None) -> Float[Tensor, "B S A"]:
    """Return the centres of the patches of an image (rows, columns, ...) whose edges are at -1 and 1: [B, S, A].

    These are the positions of DINOv3 (``axial`` with ``unit`` 2π). The last axis runs fastest. Raises PositionError for
    a length below 1.
    """
    cells_BSA = make_grid(batch, *lengths, device=device)
    # (i + ½)/n is the centre between 0 and 1, and twice that less 1 between -1 and 1.
    return 2 * (cells_BSA + 0.5) / torch.tensor(lengths, device=device) - 1


def find_last_position(pos_BS: Num[Tensor, "B S"], mask_BS: TokenMask) -> Num[Tensor, "B 1"]:
    """Return the position of each row's last token, [B, 1]; the next token stands at one more."""
    # Padding takes the least position of all, which is no row's largest.
    return torch.where(mask_BS.bool(), pos_BS, pos_BS.min()).amax(dim=-1, keepdim=True)


def repeat_on_axes(pos_BS: Num[Tensor, "B S"], axes: int) -> Num[Tensor, "B S A"]:
    """Repeat positions on A axes, [B, S, A]: as text is placed in a model of several coordinates (M-RoPE)."""
    return pos_BS[..., None].expand(*pos_BS.shape, axes)


def normalise(pos: Num[Tensor, "B S *A"], mask_BS: TokenMask, scale: float = 1.0) -> Float[Tensor, "B S *A"]:
    """Return (p + 1) / (last + 1) x scale over each row's tokens, on every axis: DETR's normalised coordinates."""
    pos = pos.float() + 1
    token = mask_BS.bool().reshape(*mask_BS.shape, *[1] * (pos.dim() - 2))
    last = torch.where(token, pos, torch.ones_like(pos)).amax(dim=1, keepdim=True)
    return pos / last * scale


def make_segments(*parts: int | tuple[int, int, int], start: int = 0) -> Int[Tensor, "1 S 3"]:
    """Return positions (t, h, w) of text and images in turn, as M-RoPE counts them: ``make_segments(5, (1, 4, 6), 3)``.

    A number is so many tokens of text, t = h = w; three numbers are an image or a film of frames, rows and columns.
    Every part begins one after the largest coordinate so far, so that what follows an image is counted from its longest
    side; the next token of a dialogue has ``start = int(pos.max()) + 1``.

    Raises PositionError where no part has a token.
    """
    made = []
    for part in parts:
        cells_1SA = repeat_on_axes(count_up(1, part), 3) if isinstance(part, int) else make_grid(1, *part)
        if not cells_1SA.numel():
            continue
        made.append(cells_1SA + start)
        start = int(made[-1].max()) + 1
    if not made:
        raise PositionError("there is no token in these segments; name at least one part with a token")
    return torch.cat(made, dim=1)
