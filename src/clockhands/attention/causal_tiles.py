"""Compute long causal attention without a bias in 16 bits on a CPU by tiles; the causal mask is a bias by distance."""

from __future__ import annotations

import torch

from clockhands.attention.distance_tiles import attend_by_tiles, make_causal_curve
from clockhands.attention.extra_channel import has_fast_low_precision
from clockhands.attention.line import Line
from clockhands.attention.request import AttentionRequest
from clockhands.shapes import Float, Tensor

LONG = 512
"""With this number of queries or more, tiles are faster than the fused kernel."""


def serves(request: AttentionRequest) -> bool:
    """Return whether tiles beat the fused kernel without a bias: from ``LONG`` on in 16 bits on a CPU without AMX."""
    return (
        request.causal
        and request.mask_BHST is None
        and "bias" not in request.hooks
        and request.q_BHSK.device.type == "cpu"
        and request.low_precision
        and request.num_queries >= LONG
        and request.num_keys >= request.num_queries
        and not has_fast_low_precision()
        and not torch.compiler.is_compiling()
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values by tiles: [B, H, S, Kv]."""
    queries, keys = request.num_queries, request.num_keys
    curve = make_causal_curve(queries + keys - 1, queries - 1, request.q_BHSK.device)
    return attend_by_tiles(request, curve, Line(max(queries, keys), 1))
