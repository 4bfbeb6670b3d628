"""Attention by blocks of queries for schemes that rotate far pairs of tokens otherwise than near ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import torch

from clockhands.attention.query_blocks import ELEMENTS, ELEMENTS_OF_A_GPU, FEW_QUERIES
from clockhands.attention.request import AttentionRequest
from clockhands.schemes.rotary.two_rotations import FarProducts, TwoRotations
from clockhands.shapes import Bool, Float, Tensor

ROWS = 128
"""The most queries of a block."""


def serves(request: AttentionRequest) -> bool:
    """Return whether far pairs rotate otherwise, in more than ``FEW_QUERIES`` queries and without dropout."""
    return (
        isinstance(request.scheme, TwoRotations)
        and not request.dropout
        and request.num_queries > FEW_QUERIES
        and not torch.compiler.is_compiling()
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values some queries at a time: [B, H, S, Kv].

    Under a causal mask a block has only the keys up to its last query. Each rotation multiplies only the keys from the
    first to the last that needs it. These are few more than need it, since distance alone tells far from near.
    """
    scheme, q, k = cast("TwoRotations", request.scheme), request.q_BHSK, request.k_BHTK
    far = list(scheme.rotate_far(q, k, request.qpos, request.kpos))
    return torch.cat([_compute_block(request, far, start, stop) for start, stop in _list_blocks(request)], dim=2)


def _list_blocks(request: AttentionRequest) -> Iterator[tuple[int, int]]:
    """Yield the first query of each block, and the one after its last."""
    batch, heads, queries = request.q_BHSK.shape[:3]
    room = ELEMENTS if request.q_BHSK.device.type == "cpu" else ELEMENTS_OF_A_GPU
    rows = min(ROWS, max(16, room // max(1, batch * heads * request.num_keys)))
    for start in range(0, queries, rows):
        yield start, min(start + rows, queries)


def _compute_block(request: AttentionRequest, far: list[FarProducts], start: int, stop: int) -> Tensor:
    """Compute the attended values of the queries from ``start`` to ``stop``."""
    q, k, scheme = request.q_BHSK[:, :, start:stop], request.k_BHTK, request.scheme
    last = request.num_keys - request.num_queries + stop if request.causal else request.num_keys
    mask_BHST = _make_mask(request, start, stop, last)
    products = [(far_q[:, :, start:stop], far_k, pairs_BST[:, start:stop, :last]) for far_q, far_k, pairs_BST in far]
    near_BST = ~torch.stack([pairs_BST for _, _, pairs_BST in products]).any(0)
    wide = torch.promote_types(q.dtype, torch.float32)
    logits_BHST = q.new_full((*q.shape[:3], last), -math.inf, dtype=wide)
    for own_q, own_k, pairs_BST in ((q, k, near_BST), *products):
        wanted_BHST = pairs_BST[:, None] & mask_BHST
        keys = _find_span(wanted_BHST)
        product = (own_q @ own_k[:, :, keys].transpose(-1, -2) * request.scale).to(wide)
        logits_BHST[..., keys] = torch.where(wanted_BHST[..., keys], product, logits_BHST[..., keys])
    # These schemes read positions on one axis: [B, S], or [B, S, 1].
    at = request.at._replace(q=q, k=k[:, :, :last], qpos=request.qpos[:, start:stop], kpos=request.kpos[:, :last])
    return scheme.weigh(logits_BHST, at).to(request.v_BHTK.dtype) @ request.v_BHTK[:, :, :last]


def _make_mask(request: AttentionRequest, start: int, stop: int, last: int) -> Bool[Tensor, "#B #H s t"]:
    """Return which of the first ``last`` keys the queries of a block may attend to."""
    device = request.q_BHSK.device
    mask = torch.ones(1, 1, stop - start, last, dtype=torch.bool, device=device)
    if request.causal:
        mask = mask.tril(last - (stop - start))
    if request.mask_BHST is not None:
        rows = slice(start, stop) if request.mask_BHST.shape[2] > 1 else slice(None)
        mask = mask & request.mask_BHST[:, :, rows, :last]
    return mask


def _find_span(wanted_BHST: Bool[Tensor, "#B #H s t"]) -> slice:
    """Return the keys from the first to the last that any query wants; empty if none does."""
    places = wanted_BHST.flatten(0, 2).any(0).nonzero().flatten()
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
