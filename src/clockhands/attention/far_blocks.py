"""Attention by blocks of queries for schemes that rotate far pairs of tokens otherwise than near ones."""

from __future__ import annotations

import math
from typing import cast

import torch

from clockhands.attention.request import FEW_QUERIES, AttentionRequest
from clockhands.schemes.rotary.two_rotations import FarProducts, TwoRotations
from clockhands.shapes import Float, Tensor

ROWS = 128
"""The most queries of a block."""


def serves(request: AttentionRequest) -> bool:
    """Return whether far pairs rotate otherwise, in more than ``FEW_QUERIES`` queries and without dropout."""
    return isinstance(request.scheme, TwoRotations) and not request.dropout and request.num_queries > FEW_QUERIES


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values some queries at a time: [B, H, S, Kv].

    Under a causal mask a block has only the keys up to its last query. Each rotation multiplies only the keys from the
    first to the last that needs it. These are few more than need it, since distance alone tells far from near.
    """
    scheme, q, k = cast("TwoRotations", request.scheme), request.q_BHSK, request.k_BHTK
    far = list(scheme.rotate_far(q, k, request.qpos, request.kpos))
    blocks = [_compute_block(request, far, start, count) for start, count in request.list_blocks(ROWS)]
    return torch.cat(blocks, dim=2)


def _compute_block(request: AttentionRequest, far: list[FarProducts], start: int, count: int) -> Tensor:
    """Compute the attended values of ``count`` queries from ``start`` on."""
    block, stop = request.take_queries(start, count), start + count
    q, last, mask_BHST = block.q_BHSK, block.num_keys, block.compute_mask()
    products = [(far_q[:, :, start:stop], far_k, pairs_BST[:, start:stop, :last]) for far_q, far_k, pairs_BST in far]
    near_BST = ~torch.stack([pairs_BST for _, _, pairs_BST in products]).any(0)
    wide = torch.promote_types(q.dtype, torch.float32)
    logits_BHST = q.new_full((*q.shape[:3], last), -math.inf, dtype=wide)
    for own_q, own_k, pairs_BST in ((q, block.k_BHTK, near_BST), *products):
        # No pair is in two of them, so that each logit is written once.
        wanted_BHST = pairs_BST[:, None] & mask_BHST
        places = wanted_BHST.flatten(0, 2).any(0).nonzero().flatten()
        # From the first key to the last that any query wants; none if none does.
        keys = slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
        product = (own_q @ own_k[:, :, keys].transpose(-1, -2) * request.scale).to(wide)
        logits_BHST[..., keys] = torch.where(wanted_BHST[..., keys], product, logits_BHST[..., keys])
    return request.scheme.weigh(logits_BHST, block.at).to(block.v_BHTK.dtype) @ block.v_BHTK
