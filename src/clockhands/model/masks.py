"""Positions and masks of a batch of tokens: where each token stands, and which keys each query may attend to.

A mask is True where attending is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands import positions
from clockhands.attention import Mask
from clockhands.errors import PositionError
from clockhands.schemes.scheme import KeyPositions, QueryPositions
from clockhands.shapes import Bool, Float, Int, Num, Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of a batch of texts, with everything that decides their positions.

    ``mask_BT`` is [B, cached + S], False at padding; it may have further columns, as for a cache of fixed size, which
    are ignored. ``pos`` are the positions of the S tokens, [B, S] or [B, S, A] with A coordinates, where one
    row may serve all; None: they are counted over the mask. ``documents_BS`` numbers the documents that are packed into
    a row; each is read as if it were alone.
    """

    ids_BS: Int[Tensor, "B S"]
    mask_BT: Bool[Tensor, "B T"] | None = None
    pos: Num[Tensor, "#B S *A"] | None = None
    documents_BS: Int[Tensor, "B S"] | None = None


@dataclass(frozen=True)
class EncodedSource:
    """An encoded source: the encoder's last states, their positions, and a mask that is False at padding.

    ``pos`` are as counted, before the transform of the encoder, because cross-attention has no transform.
    ``documents_BT`` numbers the documents that are packed into a row.
    """

    states_BTD: Float[Tensor, "B T D"]
    pos: KeyPositions
    mask_BT: Bool[Tensor, "B T"] | None = None
    documents_BT: Int[Tensor, "B T"] | None = None


@dataclass(frozen=True)
class Placement:
    """The positions of queries and keys in one call of attention, and the mask between them.

    ``kpos`` are the positions of the keys: in cross-attention of all source tokens, in self-attention of the new
    tokens, to which attention adds those of cached keys once it has read the cache. ``mask_BHSM`` is over all M keys,
    cached and new, and None where every query may attend to every key; ``causal`` adds the causal mask. ``length``: the
    number of tokens in the text, cached and new, to which the keys are cut (a cache of fixed size returns more than
    that); None: all keys that the cache returns are used.
    """

    qpos: QueryPositions
    kpos: KeyPositions
    mask_BHSM: Bool[Tensor, "#B #H S M"] | None = None
    causal: bool = False
    length: int | None = None


def count_positions(tokens: TokenBatch, past: int | Tensor = 0) -> QueryPositions:
    """Count the positions of tokens that follow ``past`` cached ones, [B, S], or return those that the batch gives.

    ``past`` is a tensor without axes while a static cache is traced (``count_cached_tokens``). Raises PositionError if
    the mask does not cover cached and new tokens, or if packed documents follow cached tokens.
    """
    batch, new = tokens.ids_BS.shape
    if tokens.documents_BS is not None and (not isinstance(past, int) or past):
        raise PositionError("packed documents cannot be continued from a cache; generate for each alone")
    if tokens.mask_BT is not None and isinstance(past, int) and tokens.mask_BT.shape[1] < past + new:
        raise PositionError(
            f"the mask has {tokens.mask_BT.shape[1]} columns, but {past} cached and {new} new tokens need "
            f"{past + new}; pass an attention_mask of [{batch}, {past + new}]"
        )
    if tokens.pos is not None:
        return tokens.pos.expand(batch, *tokens.pos.shape[1:])
    if tokens.documents_BS is not None:
        return positions.count_packed(tokens.documents_BS)
    device = tokens.ids_BS.device
    if tokens.mask_BT is None:
        if isinstance(past, int):
            return positions.count_up(batch, new, start=past, device=device)
        return positions.shift(positions.count_up(batch, new, device=device), past.expand(batch))
    return positions.count_from_mask(tokens.mask_BT).index_select(1, past + torch.arange(new, device=device))


def select_mask_of_new_tokens(tokens: TokenBatch, past: int | Tensor) -> Bool[Tensor, "B S"] | None:
    """Return the padding mask of tokens without that of the ``past`` cached ones, [B, S]; None if there is none."""
    new = tokens.ids_BS.shape[1]
    if tokens.mask_BT is None or isinstance(past, int):
        return None if tokens.mask_BT is None else tokens.mask_BT[:, past : past + new]
    return tokens.mask_BT.index_select(1, past + torch.arange(new, device=tokens.ids_BS.device))


def has_padding_after_tokens(mask_BT: Bool[Tensor, "B T"]) -> bool:
    """Return whether padding follows a token in any row, at the end or between tokens: padding on the left does not."""
    return bool((mask_BT[:, :-1] & ~mask_BT[:, 1:]).any())


def _expand_key_mask(mask_BT: Bool[Tensor, "B T"], queries: int) -> Mask:
    """Expand a mask of keys to every query and head, without a copy: [B, 1, S, T]."""
    return mask_BT[:, None, None, :].expand(-1, 1, queries, -1)


def _make_padding_mask(mask_BT: Bool[Tensor, "B T"] | None, queries: int) -> Mask | None:
    """Return the mask that hides padded keys from every query, [B, 1, S, T]; None if there is no padding.

    Kernels are faster without a mask. While tracing, when no value can be read, every mask is taken to hide some keys.
    On a GPU this waits for the device.
    """
    if mask_BT is None or (not torch.compiler.is_compiling() and bool(mask_BT.all())):
        return None
    return _expand_key_mask(mask_BT, queries)


def make_self_mask(tokens: TokenBatch, past: int) -> Mask | None:
    """Make the mask of tokens over ``past`` cached ones and themselves, [B, 1, S, T], without the causal mask."""
    new = tokens.ids_BS.shape[1]
    mask_BT = None if tokens.mask_BT is None else tokens.mask_BT[:, : past + new]
    mask = _make_padding_mask(mask_BT, new)
    if tokens.documents_BS is None:
        return mask
    same_BHSS = positions.make_document_mask(tokens.documents_BS)[:, None]
    return same_BHSS if mask is None else same_BHSS & mask


def make_static_cache_mask(tokens: TokenBatch, past: int | Tensor, capacity: int) -> Mask:
    """Make the mask of new tokens over a cache of fixed size: each attends to tokens before it and itself, no padding.

    ``capacity``: how many tokens the cache can hold, M; the mask is [B, 1, S, M]. It is for tracing alone, when the
    number of cached tokens is not known as an int; else ``Placement.length`` says how much of the cache is in use.
    """
    device = tokens.ids_BS.device
    column_S1 = past + torch.arange(tokens.ids_BS.shape[1], device=device)[:, None]
    mask_BHSM = (torch.arange(capacity, device=device) <= column_S1)[None, None]
    if tokens.mask_BT is None:
        return mask_BHSM
    # Columns that the padding mask lacks are those of places after the new tokens, which the causal mask hides.
    mask_BT = torch.nn.functional.pad(tokens.mask_BT, (0, capacity - tokens.mask_BT.shape[1]), value=True)
    return mask_BHSM & _expand_key_mask(mask_BT, mask_BHSM.shape[2])


def make_cross_placement(tokens: TokenBatch, pos: QueryPositions, source: EncodedSource) -> Placement:
    """Make the placement of cross-attention; a token of a packed document attends to that document's source.

    ``pos`` are the positions of the target's tokens, [B, S] or [B, S, A]; the mask is [B, 1, S, T], or None.
    """
    mask, documents = _make_padding_mask(source.mask_BT, tokens.ids_BS.shape[1]), source.documents_BT
    if documents is not None and tokens.documents_BS is not None:
        same_BHST = (tokens.documents_BS[:, :, None] == documents[:, None, :])[:, None]
        mask = same_BHST if mask is None else same_BHST & mask
    return Placement(pos, source.pos, mask)
