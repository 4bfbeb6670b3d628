"""Attention step by step: the specification that every kernel is compared with, and what a recorder receives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from clockhands.attention.request import (
    WHOLE_ROWS,
    AttentionRequest,
    GivenKeyPositions,
    GivenPositions,
    Mask,
    make_request,
)
from clockhands.schemes.scheme import Scheme
from clockhands.shapes import Bool, Float, Tensor


def attend_reference(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B G T K"],
    v_BHTK: Float[Tensor, "B G2 T Kv"],
    qpos: GivenPositions,
    kpos: GivenKeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> RecordedAttention:
    """Compute attention step by step; every tensor exists whole. Arguments and errors are those of ``attend``."""
    options = {"causal": causal, "scale": scale, "rotated": rotated, "dropout": dropout}
    return _compute_whole(make_request(scheme, q_BHSK, k_BHTK, v_BHTK, qpos, kpos, mask_BHST, **options))  # type: ignore[arg-type]


def _compute_steps(request: AttentionRequest) -> RecordedAttention:
    """Call every hook after ``rotate`` in its order, but ``rotate_back``, which ``attend`` calls for any kernel."""
    scheme, at, v, mask = request.scheme, request.at, request.v_BHTK, request.compute_mask()
    logits = at.q @ at.k.transpose(-1, -2) * request.scale
    # At least float32 from here: bfloat16 holds numbers near 1,000 to the nearest 4, and weights to 3 digits.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    bias = request.compute_bias()
    if bias is not None:
        logits = logits + bias
    logits = scheme.logits(logits, mask, at)
    weights = scheme.weigh(logits.masked_fill(~mask, -math.inf), at).to(v.dtype)
    # Dropout scales what is left by 1/(1 - p), so that sums keep their mean.
    dropped = F.dropout(weights, request.dropout)
    out = scheme.values(dropped @ v, dropped, at)
    return RecordedAttention(scheme, at.q, at.k, v, bias, logits, weights, out, request.scale, mask)


def _compute_whole(request: AttentionRequest) -> RecordedAttention:
    """Compute attention with all hooks, the last too, and keep every tensor."""
    attended = _compute_steps(request)
    out = request.scheme.rotate_back(attended.out_BHSK, request.qpos, request.kpos)
    return replace(attended, out_BHSK=out)


@dataclass(frozen=True)
class RecordedAttention:
    """Everything that one attention computed: what a recorder receives.

    Queries and keys are rotated, values and the output as the scheme leaves them.
    """

    scheme: Scheme
    q_BHSK: Float[Tensor, "B H S Kr"]
    k_BHTK: Float[Tensor, "B H T Kr"]
    v_BHTK: Float[Tensor, "B H T Kv"]
    bias_BHST: Float[Tensor, "#B #H S T"] | None
    """What was added to the logits, a float mask too; None: nothing was."""
    logits_BHST: Float[Tensor, "B H S T"]
    """Those before the mask, with the bias and the scheme's hook ``logits``."""
    weights_BHST: Float[Tensor, "B H S T"]
    """Those before dropout."""
    out_BHSK: Float[Tensor, "B H S Kv"]
    scale: float
    mask_BHST: Bool[Tensor, "#B #H S T"]
    """True where a query may attend to a key."""


Recorder = Callable[[RecordedAttention], None]
"""A function that receives an attention."""


def serves(request: AttentionRequest) -> bool:
    """Return whether the scheme has a hook that needs whole rows (``WHOLE_ROWS``)."""
    return bool(request.hooks & WHOLE_ROWS)


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values step by step, not rotated back: [B, H, S, Kv]."""
    return _compute_steps(request).out_BHSK


def compute_recorded(request: AttentionRequest, recorder: Recorder) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values step by step, without dropout, and hand all to the recorder: [B, H, S, Kv]."""
    attended = _compute_whole(replace(request, dropout=0.0))
    recorder(attended)
    return attended.out_BHSK
