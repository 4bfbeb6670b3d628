"""Attention step by step: what every kernel is compared with, and what a recorder hears."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.shapes import Bool, Float, Tensor

Visible = Bool[Tensor, "#B #H #S T"]


@dataclass(frozen=True)
class Attended:
    """Everything that one attention computed: what a recorder receives."""

    scheme: Scheme
    q_BHSK: Float[Tensor, "B H S Kr"]
    k_BHTK: Float[Tensor, "B H T Kr"]
    v_BHTK: Float[Tensor, "B H T Kv"]
    bias_BHST: Float[Tensor, "#B #H S T"] | None
    logits_BHST: Float[Tensor, "B H S T"]
    weights_BHST: Float[Tensor, "B H S T"]
    out_BHSK: Float[Tensor, "B H S Kv"]
    scale: float
    visible_BHST: Bool[Tensor, "#B #H S T"]


_recorder: ContextVar[Callable[[Attended], None] | None] = ContextVar("clockhands_recorder", default=None)


@contextmanager
def recording(recorder: Callable[[Attended], None]) -> Iterator[None]:
    """Hand every attention inside the block to ``recorder``, computed by the reference path (dropout is left out).

    A compiled model does not listen: record it before compiling.
    """
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def listener() -> Callable[[Attended], None] | None:
    """Who is to hear of the next attention; nobody while a model is compiled."""
    return None if torch.compiler.is_compiling() else _recorder.get()


def attend_reference(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    visible_BHST: Visible | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> Attended:
    """Attention step by step; every tensor exists whole. The arguments are those of ``attend``."""
    scale = scheme.scale(q_BHSK.shape[-1]) if scale is None else scale
    q, k = (q_BHSK, k_BHTK) if rotated else scheme.rotate(q_BHSK, k_BHTK, qpos_BS, kpos_BT)
    visible = visible_pairs(q.shape[-2], k.shape[-2], visible_BHST, causal, q.device)
    # At least float32 from here: a bias of 1,000 is rounded to 4 in bfloat16, and a softmax to 3 digits.
    logits = (q @ k.transpose(-1, -2) * scale).to(torch.promote_types(q.dtype, torch.float32))
    bias = scheme.bias(q, k, qpos_BS, kpos_BT)
    if bias is not None:
        logits = logits + bias
    logits = scheme.logits(logits, visible, q, k, qpos_BS, kpos_BT)
    weights = scheme.weigh(logits.masked_fill(~visible, -math.inf), qpos_BS, kpos_BT).to(v_BHTK.dtype)
    dropped = F.dropout(weights, dropout)
    out = scheme.values(dropped @ v_BHTK, dropped, qpos_BS, kpos_BT)
    return Attended(scheme, q, k, v_BHTK, bias, logits, weights, out, scale, visible)


def visible_pairs(
    queries: int, keys: int, visible_BHST: Visible | None, causal: bool, device: torch.device
) -> Bool[Tensor, "#B #H S T"]:
    """The whole mask: what is visible, and under ``causal`` only what is not to the right of the query."""
    whole = visible_BHST
    if causal:
        lower = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)[None, None]
        whole = lower if whole is None else whole & lower
    if whole is None:
        whole = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
    return whole.expand(-1, -1, queries, -1)
