"""Attention in one piece: the fused kernel, or three lines where those are faster."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from clockhands.schemes.attend.reference import Visible, visible_pairs
from clockhands.schemes.base import softmax
from clockhands.shapes import Float, Tensor

LOW = (torch.bfloat16, torch.float16)


def whole(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    bias_BHST: Float[Tensor, "#B #H S T"] | None,
    visible_BHST: Visible | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H S Kv"]:
    """Attention with all its weights at once. ``is_causal`` aligns top left, so it serves only where S equals T."""
    queries, keys = q_BHSK.shape[-2], k_BHTK.shape[-2]
    if three_lines(q_BHSK, k_BHTK, bias_BHST):
        return _three_lines(q_BHSK, k_BHTK, v_BHTK, bias_BHST, visible_BHST, causal, scale, dropout)
    if bias_BHST is None and visible_BHST is None and (not causal or queries in (1, keys)):
        # A comparison of traced lengths is no bool; a branch is (torch.compile with dynamic shapes).
        is_causal = True if causal and queries > 1 else False  # noqa: SIM210
        return fused(q_BHSK, k_BHTK, v_BHTK, dropout_p=dropout, is_causal=is_causal, scale=scale)
    mask: Tensor = visible_pairs(queries, keys, visible_BHST, causal, q_BHSK.device)
    if bias_BHST is not None:
        # The fused kernels take a float32 mask with low-precision queries, and add it in float32.
        mask = bias_BHST.to(torch.promote_types(q_BHSK.dtype, torch.float32)).masked_fill(~mask, -math.inf)
    return fused(q_BHSK, k_BHTK, v_BHTK, attn_mask=mask, dropout_p=dropout, scale=scale)


def fused(
    q_BHSK: Float[Tensor, "B H S K"], k_BHTK: Float[Tensor, "B H T K"], v_BHTK: Float[Tensor, "B H T Kv"], **rest: Any
) -> Float[Tensor, "B H S Kv"]:
    """The fused kernel. On a CPU it takes values as wide as the queries; for others PyTorch would make all weights."""
    spare = q_BHSK.shape[-1] - v_BHTK.shape[-1]
    if spare > 0 and q_BHSK.device.type == "cpu" and q_BHSK.shape[-2] > 1:
        return F.scaled_dot_product_attention(q_BHSK, k_BHTK, F.pad(v_BHTK, (0, spare)), **rest)[..., :-spare]
    return F.scaled_dot_product_attention(q_BHSK, k_BHTK, v_BHTK, **rest)


def three_lines(
    q_BHSK: Float[Tensor, "B H S K"], k_BHTK: Float[Tensor, "B H T K"], bias_BHST: Float[Tensor, "#B #H S T"] | None
) -> bool:
    """Whether matrix products around a softmax beat the fused kernel, as measured on a CPU with torch 2.13.

    In bfloat16 its backward pass is 2 to 4 times slower up to some 1,000 keys; with a bias that collects a gradient it
    falls back to a slow form; one query row per batch row is 1.3 to 1.6 times slower from 64 rows on.
    """
    if torch.compiler.is_compiling() or q_BHSK.device.type != "cpu":
        return False
    if q_BHSK.shape[-2] == 1:
        return q_BHSK.shape[0] >= 64
    learned = bias_BHST is not None and bias_BHST.requires_grad and torch.is_grad_enabled()
    return learned or (q_BHSK.dtype in LOW and k_BHTK.shape[-2] <= 1024)


def _three_lines(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    visible: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    logits = (q * scale) @ k.transpose(-1, -2)
    if bias is not None:
        logits = logits.to(torch.promote_types(q.dtype, torch.float32))
        logits += bias
    if visible is not None or (causal and q.shape[-2] > 1):
        logits.masked_fill_(~visible_pairs(q.shape[-2], k.shape[-2], visible, causal, q.device), -math.inf)
    blind = (visible is not None or bias is not None) and bool((logits.detach().amax(-1) == -math.inf).any())
    weights = softmax(logits) if blind else torch.softmax(logits, dim=-1)
    return F.dropout(weights.to(v.dtype), dropout) @ v
