"""FlexAttention on a GPU: the bias is computed inside the kernel, from the scheme's ``score_mod``."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import torch

from clockhands.attention.request import AttentionRequest
from clockhands.shapes import Bool, Float, Tensor

MANY_QUERIES, NARROWEST = 1024, 16
"""Queries from which on compiling is worth while, and the narrowest head that FlexAttention takes."""
BLOCK = 128
"""Queries and keys of a block of its mask."""


def serves(request: AttentionRequest) -> bool:
    """Return whether FlexAttention serves.

    It serves on CUDA, for many queries (compiling costs seconds, and a short bias is small), without dropout (it has
    none) nor sinks, and for schemes whose ``score_mod`` needs no whole bias, at whole positions: most look distances
    up.
    """
    q = request.q_BHSK
    return (
        "bias" in request.hooks
        and q.device.type == "cuda"
        and not request.dropout
        and request.sink_H is None
        and request.scheme.lean_score_mod
        and not (request.qpos.is_floating_point() or request.kpos.is_floating_point())
        and request.num_queries >= MANY_QUERIES
        and q.shape[-1] >= NARROWEST
        and q.dtype != torch.float64
        and q.shape[-1] == request.v_BHTK.shape[-1]
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute attention through the compiled FlexAttention kernel, with a block mask: [B, H, S, Kv]."""
    q, k = request.q_BHSK, request.k_BHTK
    modify = request.scheme.score_mod(request.qpos, request.kpos, q, k)
    out: Tensor = _compile_flex_attention()(
        q, k, request.v_BHTK, score_mod=modify, block_mask=_make_block_mask(request), scale=request.scale
    )
    return out


@cache
def _compile_flex_attention() -> Any:
    """Compile FlexAttention once for this process."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _make_block_mask(request: AttentionRequest) -> Any:
    """Make the mask in FlexAttention's form; None where every query may attend to every key."""
    from torch.nn.attention.flex_attention import create_block_mask

    queries, keys, causal, device = request.num_queries, request.num_keys, request.causal, request.q_BHSK.device
    if request.mask_BHST is None:
        return make_causal_block_mask(queries, keys, device) if causal else None
    # Expanded over heads too: an index that is a number and not a tensor would be read by the host (PyTorch 2.6).
    whole = request.mask_BHST.expand(len(request.q_BHSK), request.q_BHSK.shape[1], queries, keys)

    def may_attend(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        mask = whole[b, h, i, j]
        return mask & (j <= i + (keys - queries)) if causal else mask

    heads = None if request.mask_BHST.shape[1] == 1 else whole.shape[1]
    return create_block_mask(may_attend, len(whole), heads, queries, keys, device=device)


@lru_cache(maxsize=8)
def make_causal_block_mask(queries: int, keys: int, device: torch.device) -> Any:
    """Make the block mask of the last ``queries`` of ``keys`` tokens, without a mask of all pairs.

    ``create_block_mask`` makes the same from all pairs, which take 1 GiB at 32,768 tokens, in every layer.
    """
    from torch.nn.attention.flex_attention import BlockMask

    later = keys - queries

    def may_attend(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + later

    # A mask that was made in inference mode could not be saved for a backward pass.
    with torch.inference_mode(False):
        first_Q, first_K = torch.arange(0, queries, BLOCK, device=device), torch.arange(0, keys, BLOCK, device=device)
        last_key_Q = (first_Q + BLOCK).clamp(max=queries) - 1 + later
        some_QK = first_K <= last_key_Q[:, None]
        # A block that is cut off at the end of the text is never whole.
        whole_QK = (first_K + BLOCK - 1 <= (first_Q + later)[:, None]) & (first_Q + BLOCK <= queries)[:, None]
        partial, whole = _list_blocks(some_QK & ~whole_QK), _list_blocks(whole_QK)
        return BlockMask.from_kv_blocks(
            *partial, *whole, BLOCK_SIZE=BLOCK, mask_mod=may_attend, seq_lengths=(queries, keys)
        )


def _list_blocks(blocks_QK: Bool[Tensor, "Q K"]) -> tuple[Tensor, Tensor]:
    """Return how many blocks of keys each block of queries has, [1, 1, Q], and which, those first, [1, 1, Q, K]."""
    count_Q, order_QK = blocks_QK.sum(-1), blocks_QK.int().argsort(dim=-1, descending=True, stable=True)
    return count_Q.int()[None, None], order_QK.int()[None, None]
