"""FlexAttention on a GPU: the bias is computed inside the kernel, from the scheme's ``score_mod``."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from clockhands.attention.request import AttentionRequest
from clockhands.shapes import Float, Tensor

__all__ = ["MANY_QUERIES", "NARROWEST", "compute", "serves"]

MANY_QUERIES, NARROWEST = 1024, 16
"""Queries from which on compiling is worth while, and the narrowest head that FlexAttention takes."""


def serves(request: AttentionRequest) -> bool:
    """Return whether FlexAttention serves.

    It serves on CUDA, for many queries (compiling costs seconds, and a short bias is small), without dropout (it has
    none) nor sinks, and for schemes whose ``score_mod`` needs no whole bias.
    """
    q = request.q_BHSK
    return (
        "bias" in request.hooks
        and q.device.type == "cuda"
        and not torch.compiler.is_compiling()
        and not request.dropout
        and request.sink_H is None
        and request.scheme.lean_score_mod
        and request.num_queries >= MANY_QUERIES
        and q.shape[-1] >= NARROWEST
        and q.dtype != torch.float64
        and q.shape[-1] == request.v_BHTK.shape[-1]
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute attention through the compiled FlexAttention kernel, with a block mask: [B, H, S, Kv]."""
    q, k = request.q_BHSK, request.k_BHTK
    modify = request.scheme.score_mod(request.qpos_BS, request.kpos_BT, q, k)
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

    queries, keys, causal = request.num_queries, request.num_keys, request.causal
    if request.mask_BHST is None and not causal:
        return None
    whole = None if request.mask_BHST is None else request.mask_BHST.expand(len(request.q_BHSK), -1, queries, keys)

    def may_attend(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        mask = j <= i + (keys - queries) if causal else j >= 0
        return mask if whole is None else mask & whole[b, 0 if whole.shape[1] == 1 else h, i, j]

    batch = None if whole is None else len(request.q_BHSK)
    heads = None if whole is None or whole.shape[1] == 1 else request.q_BHSK.shape[1]
    return create_block_mask(may_attend, batch, heads, queries, keys, device=request.q_BHSK.device)
