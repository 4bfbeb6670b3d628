"""Attention step by step: the specification that every kernel is compared with, and what a recorder receives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from clockhands.attention.request import AttentionRequest, Mask
from clockhands.errors import UsageError
from clockhands.schemes.scheme import KeyPositions, Positions, Scheme
from clockhands.shapes import Bool, Float, Tensor

__all__ = [
    "WHOLE_ROWS",
    "RecordedAttention",
    "Recorder",
    "attend_reference",
    "compute",
    "compute_recorded",
    "compute_reference",
    "get_recorder",
    "make_request",
    "record",
    "serves",
]

WHOLE_ROWS = frozenset({"logits", "weigh", "values"})
"""Hooks that need all logits or weights of a row, which no other kernel has at once."""


@dataclass(frozen=True)
class RecordedAttention:
    """Everything that one attention computed: what a recorder receives.

    Queries and keys are rotated, values and the output as the scheme leaves them. ``logits_BHST`` are those before the
    mask, with the bias and the scheme's hook ``logits``; ``weights_BHST`` those before dropout. ``mask_BHST`` is True
    where a query may attend to a key.
    """

    scheme: Scheme
    q_BHSK: Float[Tensor, "B H S Kr"]
    k_BHTK: Float[Tensor, "B H T Kr"]
    v_BHTK: Float[Tensor, "B H T Kv"]
    bias_BHST: Float[Tensor, "#B #H S T"] | None
    logits_BHST: Float[Tensor, "B H S T"]
    weights_BHST: Float[Tensor, "B H S T"]
    out_BHSK: Float[Tensor, "B H S Kv"]
    scale: float
    mask_BHST: Bool[Tensor, "#B #H S T"]


Recorder = Callable[[RecordedAttention], None]
"""A function that receives an attention."""
_recorder: ContextVar[Recorder | None] = ContextVar("clockhands_recorder", default=None)


@contextmanager
def record(recorder: Recorder) -> Iterator[None]:
    """Hand every attention inside the block to ``recorder``, computed by the reference path without dropout.

    A compiled model calls no recorder: record it before compiling.
    """
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


def get_recorder() -> Recorder | None:
    """Return the function that receives the next attention; None if there is none, and while a model is compiled."""
    return None if torch.compiler.is_compiling() else _recorder.get()


def make_request(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B G T K"],
    v_BHTK: Float[Tensor, "B G2 T Kv"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> AttentionRequest:
    """Rotate queries, keys and values and put all into one request. Arguments and errors are those of ``attend``."""
    k_BHTK, v_BHTK = (_share_heads(q_BHSK.shape[1], x) for x in (k_BHTK, v_BHTK))
    scale = scheme.scale(q_BHSK.shape[-1]) if scale is None else scale
    q, k = (q_BHSK, k_BHTK) if rotated else scheme.rotate(q_BHSK, k_BHTK, qpos_BS, kpos_BT)
    hooks = scheme.active_hooks()
    if "rotate_values" in hooks and not rotated:
        v_BHTK = scheme.rotate_values(v_BHTK, qpos_BS, kpos_BT)
    return AttentionRequest(scheme, q, k, v_BHTK, qpos_BS, kpos_BT, mask_BHST, causal, scale, dropout, hooks)


def _share_heads(heads: int, x_BGTK: Float[Tensor, "B G T K"]) -> Float[Tensor, "B H T K"]:
    """Repeat each head of keys or values for the query heads of its group: [B, H, T, K].

    Raises UsageError where the number of heads does not divide that of the query heads.
    """
    groups = x_BGTK.shape[1]
    if groups == heads:
        return x_BGTK
    if groups == 0 or heads % groups:
        raise UsageError(
            f"{heads} heads of queries cannot share {groups} heads of keys or values; their number must divide {heads}"
        )
    return x_BGTK.repeat_interleave(heads // groups, dim=1)


def attend_reference(*args: Any, **options: Any) -> RecordedAttention:
    """Compute attention step by step; every tensor exists whole. Arguments and errors are those of ``attend``."""
    return compute_reference(make_request(*args, **options))


def serves(request: AttentionRequest) -> bool:
    """Return whether the scheme has a hook that needs whole rows (``WHOLE_ROWS``)."""
    return bool(request.hooks & WHOLE_ROWS)


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values step by step, not rotated back: [B, H, S, Kv]."""
    return _compute_until_rotated_back(request).out_BHSK


def compute_recorded(request: AttentionRequest, recorder: Recorder) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values step by step, without dropout, and hand all to the recorder: [B, H, S, Kv]."""
    attended = compute_reference(replace(request, dropout=0.0))
    recorder(attended)
    return attended.out_BHSK


def compute_reference(request: AttentionRequest) -> RecordedAttention:
    """Compute attention by calling every hook of the scheme in its order, and keep every tensor."""
    attended = _compute_until_rotated_back(request)
    out = request.scheme.rotate_back(attended.out_BHSK, request.qpos_BS, request.kpos_BT)
    return replace(attended, out_BHSK=out)


def _compute_until_rotated_back(request: AttentionRequest) -> RecordedAttention:
    """Call every hook but ``rotate_back``, which ``attend`` calls itself, whichever kernel served."""
    scheme, q, k, v = request.scheme, request.q_BHSK, request.k_BHTK, request.v_BHTK
    positions, mask = (request.qpos_BS, request.kpos_BT), request.compute_mask()
    # At least float32 from here: bfloat16 holds numbers near 1,000 to the nearest 4, and weights to 3 digits.
    logits = (q @ k.transpose(-1, -2) * request.scale).to(torch.promote_types(q.dtype, torch.float32))
    bias = request.compute_bias()
    if bias is not None:
        logits = logits + bias
    logits = scheme.logits(logits, mask, q, k, *positions, request.scale)
    weights = scheme.weigh(logits.masked_fill(~mask, -math.inf), *positions).to(v.dtype)
    dropped = F.dropout(weights, request.dropout)
    out = scheme.values(dropped @ v, dropped, *positions)
    return RecordedAttention(scheme, q, k, v, bias, logits, weights, out, request.scale, mask)
