"""Dual Chunk Attention: a text in chunks, each of which sees the others from inside the trained length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch

from clockhands.errors import refuse
from clockhands.options import FromTwo, Positive
from clockhands.schemes.rotary.rotation import Layout
from clockhands.schemes.rotary.trained_length import require_trained_length
from clockhands.schemes.rotary.two_rotations import FarPairs, TwoRotations
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Num, Tensor


@final
class DualChunk(TwoRotations):
    """Dual Chunk Attention (An et al. 2024): chunks of s tokens, and no distance reaches the trained length c.

    Within a chunk distances are RoPE's. Keys stand at j mod s. For them a query stands at min(s + i mod s, c - 1) where
    they are in the chunk before, so that the nearest c - s tokens keep their distance, and at c - 1 for earlier chunks.
    A model that was trained with RoPE reads longer texts so without training.

    Args:
        head_dim: width of a head; even.
        base: θ_c = base^(-2c/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        original_length: c, the trained length. In a new training it is the length of its texts.
        chunk: s, in tokens, below c; None: three quarters of c.

    Examples:
        >>> import torch
        >>> from clockhands.attention import attend_reference
        >>> from clockhands.schemes import DualChunk
        >>> q, pos = torch.ones(1, 1, 4, 2), torch.tensor([[0, 1, 2, 3]])
        >>> scheme = DualChunk(head_dim=2, original_length=3, chunk=2)
        >>> attend_reference(scheme, q, q, q, pos, pos, causal=True).logits_BHST[0, 0, 3]
        tensor([-0.5885,  0.7641,  0.7641,  1.4142])
    """

    equation = (
        r"\ell_{ij} = q_i^\top R(P - (j \bmod s)) k_j / \sqrt{d_h}, \quad "
        r"P \in \{i \bmod s, \min(s + i \bmod s, c - 1), c - 1\}"
    )
    source = "An et al. 2024 (2402.17463)"
    peers = ("HKUNLP/ChunkLlama (the authors' code)", "vLLM DualChunkRotaryEmbedding")
    models = ("Qwen2.5-1M",)

    def __init__(
        self,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        original_length: FromTwo | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__("dual-chunk", head_dim, base, layout)
        self.length = require_trained_length("dual-chunk", original_length)
        self.chunk = 3 * self.length // 4 if chunk is None else chunk
        refuse(
            not 1 <= self.chunk < self.length,
            f"dual-chunk.chunk is {self.chunk}, but must be at least 1 and below original_length, which is "
            f"{self.length}",
        )

    declares = Declares(causal_only=True, real_valued=True)

    def list_far_pairs(self, qpos: Num[Tensor, "B S"], kpos: Num[Tensor, "B T"]) -> Iterator[FarPairs]:
        qchunk_BS = torch.div(qpos, self.chunk, rounding_mode="floor")
        kchunk_BT = torch.div(kpos, self.chunk, rounding_mode="floor")
        # 0: the same chunk, 1: neighbours, more: far.
        apart_BST = qchunk_BS[:, :, None] - kchunk_BT[:, None, :]
        # i mod s and j mod s, of real numbers too.
        inside_BS, key_BT = qpos - qchunk_BS * self.chunk, kpos - kchunk_BT * self.chunk
        last = self.length - 1
        # Neighbours: the true distance as long as the trained length holds it.
        yield (inside_BS + self.chunk).clamp(max=last), key_BT, apart_BST == 1
        # Far: every query stands at the last trained position.
        yield torch.full_like(qpos, last), key_BT, apart_BST > 1
