"""Chunks: keys of another stretch of the text are masked."""

from __future__ import annotations

import math
from functools import reduce
from operator import and_, or_
from typing import Any, final

import torch

from clockhands.options import Count, FromZero
from clockhands.schemes.frequencies import pair_coordinates, take_axis
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    Declares,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scheme,
    ScoreMod,
)
from clockhands.shapes import Tensor


@final
class Chunks(Scheme):
    """Chunked attention (Llama 4, 2025) without any other position: a token attends inside its chunk of the text.

    Of positions of several coordinates it shows the keys that are in the query's chunk along every one: on a grid,
    square windows that do not overlap, as Swin's are (Liu et al. 2021). Two schemes with ``axis`` 0 and 1 make other
    rectangles.

    Args:
        size: tokens of a chunk; the first begins at position 0.
        axis: the one coordinate that is read, counted from 0; None: every coordinate. One behind the coordinates of the
            other schemes is one more, which chunks alone read, as under ``window``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import AttentionInputs, Chunks
        >>> q, pos = torch.zeros(1, 1, 3, 2), torch.tensor([[0, 1, 2]])
        >>> Chunks(size=2).bias(AttentionInputs(q, q, pos, pos))[0, 0, 2]
        tensor([-inf, -inf, 0.])
    """

    equation = r"\ell_{ij} \mathrel{+}= 0 \text{ if } \lfloor i/C \rfloor = \lfloor j/C \rfloor \text{ else } -\infty"
    source = "Llama 4 (Meta 2025), model code"
    peers = ("transformers attention_chunk_size",)
    models = ("Llama 4",)
    masks = True
    lean_score_mod = True

    def __init__(self, *, size: Count = 8192, axis: FromZero | None = None) -> None:
        super().__init__()
        self.size, self.axis = size, axis

    @property
    def declares(self) -> Declares:
        return Declares(real_valued=True, axes=(self.axis or 0) + 1, more_axes=True)

    def to_hf_config(self) -> dict[str, Any] | None:
        return {"attention_chunk_size": self.size} if self.axis is None else None

    def bias(self, at: AttentionInputs) -> Bias:
        pairs = self._number(at.qpos, at.kpos)
        # Rows that are one expanded row are compared once.
        if all(query_BS.stride(0) == key_BT.stride(0) == 0 for query_BS, key_BT in pairs):
            pairs = [(query_BS[:1], key_BT[:1]) for query_BS, key_BT in pairs]
        # Apart along any coordinate is apart.
        apart_BST = reduce(or_, (query_BS[:, :, None] != key_BT[:, None, :] for query_BS, key_BT in pairs))
        return torch.zeros(apart_BST.shape, device=apart_BST.device).masked_fill(apart_BST, -math.inf)[:, None]

    def score_mod(
        self, qpos: QueryPositions, kpos: KeyPositions, q_BHSK: Queries | None = None, k_BHTK: Keys | None = None
    ) -> ScoreMod:
        pairs = self._number(qpos, kpos)
        return lambda score, b, h, i, j: torch.where(
            reduce(and_, [query_BS[b, i] == key_BT[b, j] for query_BS, key_BT in pairs]), score, -math.inf
        )

    def _number(self, qpos: QueryPositions, kpos: KeyPositions) -> list[tuple[Tensor, Tensor]]:
        """Return, for each coordinate that is read, the numbers of the chunks of queries, [B, S], and keys, [B, T]."""
        if self.axis is None and qpos.dim() == kpos.dim() == 3:
            pairs = pair_coordinates(qpos, kpos, "chunks")
        else:
            pairs = [(take_axis(qpos, "chunks", self.axis), take_axis(kpos, "chunks", self.axis))]
        return [(self._divide(query_BS), self._divide(key_BT)) for query_BS, key_BT in pairs]

    def _divide(self, pos: QueryPositions) -> Tensor:
        return torch.div(pos, self.size, rounding_mode="floor")
