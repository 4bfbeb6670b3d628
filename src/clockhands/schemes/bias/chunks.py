"""Chunks: keys of another stretch of the text are masked."""

from __future__ import annotations

import math
from typing import Any, final

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import drop_axis
from clockhands.schemes.scheme import Declares, KeyPositions, Positions, Scheme, ScoreMod
from clockhands.shapes import Float, Tensor

__all__ = ["Chunks"]


@final
class Chunks(Scheme):
    """Chunked attention (Llama 4, 2025) without any other position: a token attends inside its chunk of the text.

    Args:
        size: tokens of a chunk; the first begins at position 0.

    Example:
        >>> import torch
        >>> from clockhands.schemes import Chunks
        >>> q, pos = torch.zeros(1, 1, 3, 2), torch.tensor([[0, 1, 2]])
        >>> Chunks(size=2).bias(q, q, pos, pos)[0, 0, 2]
        tensor([-inf, -inf, 0.])
    """

    equation = r"\ell_{ij} \mathrel{+}= 0 \text{ if } \lfloor i/C \rfloor = \lfloor j/C \rfloor \text{ else } -\infty"
    source = "Llama 4 (Meta 2025), model code"
    peers = ("transformers attention_chunk_size",)
    models = ("Llama 4",)
    masks = True
    lean_score_mod = True

    def __init__(self, *, size: int = 8192) -> None:
        super().__init__()
        if size < 1:
            raise ConfigError([f"chunks.size is {size}; a chunk has 1 token or more"], "the scheme")
        self.size = size

    @property
    def declares(self) -> Declares:
        """The promises of chunks: where a text begins decides where they end."""
        return Declares(real_valued=True)

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``attention_chunk_size``, as in Llama 4."""
        return {"attention_chunk_size": self.size}

    def bias(
        self,
        q_BHSK: Float[Tensor, "B H S Kr"],
        k_BHTK: Float[Tensor, "B H T Kr"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
        scale: float | None = None,
    ) -> Float[Tensor, "#B 1 S T"]:
        """Return 0 between tokens of one chunk and -∞ between others: [B, 1, S, T].

        Raises PositionError for positions of several coordinates.
        """
        query_BS, key_BT = self._number(qpos_BS), self._number(kpos_BT)
        if query_BS.stride(0) == key_BT.stride(0) == 0:
            query_BS, key_BT = query_BS[:1], key_BT[:1]
        apart_BST = query_BS[:, :, None] != key_BT[:, None, :]
        return torch.zeros(apart_BST.shape, device=apart_BST.device).masked_fill(apart_BST, -math.inf)[:, None]

    def score_mod(
        self,
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
        q_BHSK: Float[Tensor, "B H S Kr"] | None = None,
        k_BHTK: Float[Tensor, "B H T Kr"] | None = None,
    ) -> ScoreMod:
        """Make a FlexAttention ``score_mod`` that compares the chunks of query and key."""
        query_BS, key_BT = self._number(qpos_BS), self._number(kpos_BT)
        return lambda score, b, h, i, j: torch.where(query_BS[b, i] == key_BT[b, j], score, -math.inf)

    def _number(self, pos: Positions) -> Tensor:
        """Return the number of the chunk that each position is in."""
        return torch.div(drop_axis(pos, "chunks"), self.size, rounding_mode="floor")
