"""What the model reads (``Text``, ``Encoded``), and the positions and masks that are made of it (``Placement``).

A mask is True where attending is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands import positions
from clockhands.attention import Mask
from clockhands.errors import PositionError
from clockhands.schemes.scheme import KeyPositions, Positions
from clockhands.shapes import Bool, Float, Int, Num, Tensor

__all__ = [
    "Encoded",
    "Placement",
    "Text",
    "count_positions",
    "expand_key_mask",
    "has_padding",
    "make_cross_placement",
    "make_padding_mask",
    "make_self_mask",
    "make_static_cache_mask",
]


@dataclass(frozen=True)
class Placement:
    """The positions of queries and of the keys computed with them, and the mask between them.

    ``kpos_BT`` are positions of the new keys; attention puts those of all keys in their place once it has read the
    cache. ``mask_BHSM`` is over all M keys of the KV cache and of this call, and None where every query may attend to
    every key; ``causal`` hides later keys. ``length``: how many tokens of a cache of fixed size are in use; None: all.
    """

    qpos_BS: Positions
    kpos_BT: KeyPositions
    mask_BHSM: Bool[Tensor, "#B #H S M"] | None = None
    causal: bool = False
    length: int | None = None


@dataclass(frozen=True)
class Text:
    """Token ids with everything that tells their positions.

    ``mask_BT`` is [B, cached + S], False at padding; columns beyond, as a cache of fixed size has them, are ignored.
    ``positions_BS`` are the positions of the S tokens; None: counted over the mask. ``documents_BS`` numbers the
    documents that are packed into a row: each is read as if it were alone.
    """

    ids_BS: Int[Tensor, "B S"]
    mask_BT: Bool[Tensor, "B T"] | None = None
    positions_BS: Num[Tensor, "#B S *A"] | None = None
    documents_BS: Int[Tensor, "B S"] | None = None


@dataclass(frozen=True)
class Encoded:
    """An encoded source: the encoder's last states, their positions, and a mask that is False at padding.

    ``positions_BT`` are as counted, before the transform of the encoder: cross-attention reads these.
    """

    states_BTD: Float[Tensor, "B T D"]
    positions_BT: KeyPositions
    mask_BT: Bool[Tensor, "B T"] | None = None
    documents_BT: Int[Tensor, "B T"] | None = None

    def select(self, rows: Int[Tensor, " N"]) -> Encoded:
        """Return these rows of the batch, in this order."""
        mask = None if self.mask_BT is None else self.mask_BT[rows]
        documents = None if self.documents_BT is None else self.documents_BT[rows]
        return Encoded(self.states_BTD[rows], self.positions_BT[rows], mask, documents)


def count_positions(text: Text, past: int | Tensor = 0) -> Positions:
    """Count the positions of a text's tokens, after ``past`` cached tokens: [B, S], or as given with the text.

    Raises PositionError if the mask does not cover the cached tokens and these, or documents are packed over a cache.
    """
    batch, new = text.ids_BS.shape
    if text.positions_BS is not None:
        return text.positions_BS.expand(batch, *text.positions_BS.shape[1:])
    if text.documents_BS is not None:
        if not isinstance(past, int) or past:
            raise PositionError("packed documents cannot be continued from a cache; generate for each alone")
        return positions.packed(text.documents_BS)
    device = text.ids_BS.device
    if text.mask_BT is None:
        if isinstance(past, int):
            return positions.sequential(batch, new, start=past, device=device)
        return positions.shifted(positions.sequential(batch, new, device=device), past.expand(batch))
    if isinstance(past, int) and text.mask_BT.shape[1] < past + new:
        raise PositionError(
            f"the mask has {text.mask_BT.shape[1]} columns, but {past} cached and {new} new tokens need {past + new}; "
            f"pass an attention_mask of [{batch}, {past + new}]"
        )
    return positions.from_mask(text.mask_BT).index_select(1, past + torch.arange(new, device=device))


def select_new(text: Text, past: int | Tensor) -> Bool[Tensor, "B S"] | None:
    """Return the mask of a text's own tokens, without the ``past`` cached ones: [B, S]; None where there is none."""
    new = text.ids_BS.shape[1]
    if text.mask_BT is None or isinstance(past, int):
        return None if text.mask_BT is None else text.mask_BT[:, past : past + new]
    return text.mask_BT.index_select(1, past + torch.arange(new, device=text.ids_BS.device))


def has_padding(mask_BT: Bool[Tensor, "B T"] | None) -> bool:
    """Return whether a mask hides any key: a mask that hides none is dropped, so that faster kernels serve.

    Returns True while tracing, where no value can be read; else it waits for the device.
    """
    return mask_BT is not None and (torch.compiler.is_compiling() or not bool(mask_BT.all()))


def expand_key_mask(mask_BT: Bool[Tensor, "B T"], queries: int) -> Mask:
    """Expand a mask of keys to every query and head, without a copy: [B, 1, S, T]."""
    return mask_BT[:, None, None, :].expand(-1, 1, queries, -1)


def make_padding_mask(mask_BT: Bool[Tensor, "B T"] | None, queries: int) -> Mask | None:
    """Return the mask that hides padded keys from every query, [B, 1, S, T]; None if there is no padding."""
    return expand_key_mask(mask_BT, queries) if mask_BT is not None and has_padding(mask_BT) else None


def make_self_mask(text: Text, past: int) -> Mask | None:
    """Make the mask of a text's tokens over the cached tokens and themselves, apart from causality."""
    new = text.ids_BS.shape[1]
    padding = None if text.mask_BT is None else text.mask_BT[:, : past + new]
    mask = make_padding_mask(padding, new)
    if text.documents_BS is None:
        return mask
    same_BHSS = positions.same_document(text.documents_BS)[:, None]
    return same_BHSS if mask is None else same_BHSS & mask


def make_static_cache_mask(text: Text, past: int | Tensor, length: int) -> Mask:
    """Make the mask of new tokens over a cache of fixed length: the tokens before them and themselves, no padding.

    For tracing alone, where the number of cached tokens is not known; else ``Placement.length`` cuts the cache.
    """
    device = text.ids_BS.device
    now_S1 = past + torch.arange(text.ids_BS.shape[1], device=device)[:, None]
    mask_BHST = (torch.arange(length, device=device) <= now_S1)[None, None]
    if text.mask_BT is None:
        return mask_BHST
    mask_BT = torch.nn.functional.pad(text.mask_BT, (0, length - text.mask_BT.shape[1]), value=True)
    return mask_BHST & expand_key_mask(mask_BT, mask_BHST.shape[2])


def make_cross_placement(text: Text, pos_BS: Positions, source: Encoded) -> Placement:
    """Place cross-attention: a target token attends to source tokens, of its own document where texts are packed."""
    mask, documents = make_padding_mask(source.mask_BT, text.ids_BS.shape[1]), source.documents_BT
    if documents is not None and text.documents_BS is not None:
        same_BHST = (text.documents_BS[:, :, None] == documents[:, None, :])[:, None]
        mask = same_BHST if mask is None else same_BHST & mask
    return Placement(pos_BS, source.positions_BT, mask)
