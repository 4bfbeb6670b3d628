"""The base of the schemes that rotate far pairs of tokens otherwise than near ones, so that a text may be longer."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from clockhands.schemes.frequencies import (
    choose_working_dtype,
    compute_cos_sin,
    compute_frequencies,
    take_axis,
    take_shared_row,
)
from clockhands.schemes.rotary.rotation import CosSin, Layout, Rotary, add_head_axis, check_pairs, rotate_pairs
from clockhands.schemes.scheme import AttentionInputs, KeyPositions, Logits, MaskedPairs, QueryPositions
from clockhands.shapes import Bool, Float, Num, Tensor

FarProducts = tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"], Bool[Tensor, "B S T"]]
FarPairs = tuple[Num[Tensor, "B S"], Num[Tensor, "B T"], Bool[Tensor, "B S T"]]


class TwoRotations(Rotary):
    """RoPE in which far pairs of query and key are rotated to other positions than near ones.

    A subclass says which pairs are far, and to which positions. ``rotate`` is that of RoPE, so that keys are cached
    once; for far pairs, ``logits`` rotates queries and keys on from their own positions. There all logits of a row are
    computed two or three times, and exist whole; ``attention.far_blocks`` computes each once, some rows at a time.
    """

    def __init__(self, name: str, head_dim: int, base: float, layout: Layout) -> None:
        super().__init__(layout)
        check_pairs(name, head_dim, "head_dim")
        self.name, self.head_dim, self.base = name, head_dim, base

    def list_far_pairs(self, qpos: Num[Tensor, "B S"], kpos: Num[Tensor, "B T"]) -> Iterator[FarPairs]:
        """For each kind of far pairs, yield positions to which q and k are rotated, and which pairs they are."""
        raise NotImplementedError(f"{type(self).__name__} must say which pairs are far")

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        own = take_shared_row(take_axis(pos, self.name))
        return add_head_axis(
            *compute_cos_sin(own, compute_frequencies(self.head_dim, self.base, device=own.device), dtype)
        )

    def logits(self, logits_BHST: Logits, mask_BHST: MaskedPairs, at: AttentionInputs) -> Logits:
        """Exchange q·k of far pairs, and leave what else was added to their logits: [B, H, S, T]."""
        scale = self.scale(self.head_dim) if at.scale is None else at.scale
        near_BHST = (at.q @ at.k.transpose(-1, -2) * scale).to(logits_BHST.dtype)
        for q, k, far_BST in self.rotate_far(at.q, at.k, at.qpos, at.kpos):
            far_BHST = (q @ k.transpose(-1, -2) * scale).to(logits_BHST.dtype)
            # The near product is in the logits already: taken away where the pair is far.
            logits_BHST = logits_BHST + (far_BHST - near_BHST).where(far_BST[:, None], 0.0)
        return logits_BHST

    def rotate_far(
        self, q_BHSK: Float[Tensor, "B H S K"], k_BHTK: Float[Tensor, "B H T K"], qpos: QueryPositions,
        kpos: KeyPositions,
    ) -> Iterator[FarProducts]:  # fmt: skip
        """For each kind of far pairs, yield q and k rotated for them, and which pairs they are.

        No pair is of two kinds. Raises PositionError for positions of several coordinates.
        """
        qpos, kpos = take_axis(qpos, self.name), take_axis(kpos, self.name)
        for new_qpos_BS, new_kpos_BT, far_BST in self.list_far_pairs(qpos, kpos):
            yield (
                # R(a)R(b) = R(a + b): rotated before, they are rotated on by the difference.
                self._rotate_on(q_BHSK, new_qpos_BS - qpos),
                self._rotate_on(k_BHTK, new_kpos_BT - kpos),
                far_BST,
            )

    def _rotate_on(self, x_BHSK: Tensor, shift_BS: Num[Tensor, "B S"]) -> Tensor:
        # Not rotate_heads: its memo is for the positions that all layers share.
        return rotate_pairs(x_BHSK, *self.compute_cos_sin(shift_BS, choose_working_dtype(x_BHSK.dtype)), self.layout)
