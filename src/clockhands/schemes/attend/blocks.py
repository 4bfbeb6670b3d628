"""Attention by blocks of queries for any bias: a block's bias is made, used, and made again in the backward pass."""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint

from clockhands.schemes.attend.reference import Visible
from clockhands.schemes.attend.whole import whole
from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.shapes import Float, Tensor

ROWS, ELEMENTS, ELEMENTS_OF_A_GPU = 256, 1 << 19, 1 << 24


def blockwise(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    visible_BHST: Visible | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H S Kv"]:
    """Attention with ``scheme.bias``, some queries at a time; under a causal mask with the keys up to the last.

    A block has ``ROWS`` queries at most, and about ``ELEMENTS`` logits (a processor's cache; a GPU
    wants more at once), so that its memory does not grow with the text.
    """
    queries, keys = q_BHSK.shape[2], k_BHTK.shape[2]
    room = ELEMENTS if q_BHSK.device.type == "cpu" else ELEMENTS_OF_A_GPU
    rows_at_once = min(ROWS, max(16, room // max(1, q_BHSK.shape[0] * q_BHSK.shape[1] * keys)))
    axis, outs = (2 if qpos_BS.dim() == 4 else 1), []

    def block(q: Tensor, k: Tensor, v: Tensor, qpos: Tensor, kpos: Tensor, visible: Tensor | None) -> Tensor:
        return whole(q, k, v, scheme.bias(q, k, qpos, kpos), visible, causal, scale, dropout)

    for start in range(0, queries, rows_at_once):
        stop = min(start + rows_at_once, queries)
        last = keys - queries + stop if causal else keys
        visible = visible_BHST
        if visible is not None:
            rows = slice(start, stop) if visible.shape[2] > 1 else slice(None)
            visible = visible[:, :, rows, :last]
        parts = (
            q_BHSK[:, :, start:stop], k_BHTK[:, :, :last], v_BHTK[:, :, :last],
            qpos_BS.narrow(axis, start, stop - start), kpos_BT.narrow(axis, 0, last), visible,
        )  # fmt: skip
        outs.append(checkpoint(block, *parts, use_reentrant=False) if torch.is_grad_enabled() else block(*parts))
    return torch.cat(outs, dim=2)
