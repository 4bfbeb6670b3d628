"""Who sees whom, and where everybody stands: texts, positions and masks, before any attention is computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands import positions
from clockhands.attention import Mask
from clockhands.errors import PositionError
from clockhands.schemes.scheme import KeyPositions, Positions
from clockhands.shapes import Bool, Float, Int, Num, Tensor


@dataclass(frozen=True)
class Sight:
    """Where queries and the keys computed with them stand, and who sees whom.

    ``visible_BHSM`` is over all M keys in memory, cached ones included, and None where everything may be seen;
    ``causal`` hides what comes later in memory. ``length``: how much of a cache of fixed size is in use; None: all.
    """

    qpos_BS: Positions
    kpos_BT: KeyPositions
    visible_BHSM: Bool[Tensor, "#B #H S M"] | None = None
    causal: bool = False
    length: int | None = None


@dataclass(frozen=True)
class Text:
    """Words with all that tells where they stand.

    ``mask_BT`` covers the cached words and these (True: real); it may go on for a cache of fixed size. ``positions_BS``
    are of these words; None: counted over the mask. ``documents_BS`` numbers the documents packed into a row: each is
    read as if it were alone.
    """

    ids_BS: Int[Tensor, "B S"]
    mask_BT: Bool[Tensor, "B T"] | None = None
    positions_BS: Num[Tensor, "#B S *A"] | None = None
    documents_BS: Int[Tensor, "B S"] | None = None


@dataclass(frozen=True)
class Encoded:
    """A read source: the encoder's last states, where they stand, and which of them are real."""

    states_BTD: Float[Tensor, "B T D"]
    positions_BT: KeyPositions
    mask_BT: Bool[Tensor, "B T"] | None = None
    documents_BT: Int[Tensor, "B T"] | None = None


def counted(text: Text, past: int | Tensor = 0) -> Positions:
    """The positions of a text's words, ``past`` words being cached before them.

    Raises PositionError if the mask does not cover the cached words and these, or documents are packed over a cache.
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
            f"the mask has {text.mask_BT.shape[1]} columns, but {past} cached and {new} new words need {past + new}"
        )
    return positions.from_mask(text.mask_BT).index_select(1, past + torch.arange(new, device=device))


def hides(mask_BT: Bool[Tensor, "B T"] | None) -> bool:
    """Whether a mask hides anything; without one the faster kernels serve. Not asked while tracing."""
    return mask_BT is not None and (torch.compiler.is_compiling() or not bool(mask_BT.all()))


def columns(mask_BT: Bool[Tensor, "B T"], queries: int) -> Mask:
    """The same keys for every query and head, without a copy."""
    return mask_BT[:, None, None, :].expand(-1, 1, queries, -1)


def within(text: Text, past: int) -> Mask | None:
    """What the words of a text see of memory and of themselves, order aside."""
    new = text.ids_BS.shape[1]
    mask = None if text.mask_BT is None else text.mask_BT[:, : past + new]
    visible = None if mask is None or not hides(mask) else columns(mask, new)
    if text.documents_BS is None:
        return visible
    same_BHSS = positions.same_document(text.documents_BS)[:, None]
    return same_BHSS if visible is None else same_BHSS & visible


def up_to_now(text: Text, past: int | Tensor, length: int) -> Mask:
    """What new words see in a memory of fixed length: the words before them and themselves, padding aside.

    For tracing alone, where the number of words before is not known; else ``Sight.length`` cuts the memory.
    """
    device = text.ids_BS.device
    now_S1 = past + torch.arange(text.ids_BS.shape[1], device=device)[:, None]
    visible_BHST = (torch.arange(length, device=device) <= now_S1)[None, None]
    if text.mask_BT is None:
        return visible_BHST
    mask_BT = torch.nn.functional.pad(text.mask_BT, (0, length - text.mask_BT.shape[1]), value=True)
    return visible_BHST & mask_BT[:, None, None, :]


def across(text: Text, pos_BS: Positions, source: Encoded) -> Sight:
    """What the words of a target see of the source: its real words, of the same document where texts are packed."""
    mask, documents = source.mask_BT, source.documents_BT
    visible = None if mask is None or not hides(mask) else columns(mask, text.ids_BS.shape[1])
    if documents is not None and text.documents_BS is not None:
        same_BHST = (text.documents_BS[:, :, None] == documents[:, None, :])[:, None]
        visible = same_BHST if visible is None else same_BHST & visible
    return Sight(pos_BS, source.positions_BT, visible)
