"""What the model reads: token ids with everything that decides their positions, and a source that is encoded."""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.schemes.scheme import KeyPositions
from clockhands.shapes import Bool, Float, Int, Num, Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of a batch of texts, with everything that decides their positions.

    ``mask_BT`` is [B, cached + S], False at padding; it may have further columns, as for a cache of fixed size, which
    are ignored. ``positions_BS`` are the positions of the S tokens, [B, S] or [B, S, A] with A coordinates, where one
    row may serve all; None: they are counted over the mask. ``documents_BS`` numbers the documents that are packed into
    a row; each is read as if it were alone.
    """

    ids_BS: Int[Tensor, "B S"]
    mask_BT: Bool[Tensor, "B T"] | None = None
    positions_BS: Num[Tensor, "#B S *A"] | None = None
    documents_BS: Int[Tensor, "B S"] | None = None


@dataclass(frozen=True)
class EncodedSource:
    """An encoded source: the encoder's last states, their positions, and a mask that is False at padding.

    ``positions_BT`` are as counted, before the transform of the encoder, because cross-attention has no transform.
    ``documents_BT`` numbers the documents that are packed into a row.
    """

    states_BTD: Float[Tensor, "B T D"]
    positions_BT: KeyPositions
    mask_BT: Bool[Tensor, "B T"] | None = None
    documents_BT: Int[Tensor, "B T"] | None = None
