"""Attention step by step: the specification that every kernel is compared with, and what a recorder receives."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from clockhands.attention.request import (
    WHOLE_ROWS,
    AttentionRequest,
    GivenKeyPositions,
    GivenPositions,
    Mask,
    lower,
    make_request,
)
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.scheme import Scheme, is_autocast_on
from clockhands.shapes import Bool, Float, Tensor


@explain_call
def attend_reference(
    scheme: Scheme,
    q_BHSK: Float[Tensor, "B H S K"],
    k_BGTK: Float[Tensor, "B G T K"],
    v_BGTK: Float[Tensor, "B G2 T Kv"],
    qpos: GivenPositions,
    kpos: GivenKeyPositions,
    mask_BHST: Mask | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    rotated: bool = False,
    dropout: float = 0.0,
) -> RecordedAttention:
    """Compute attention step by step; every tensor exists whole. Arguments and errors are those of ``attend``.

    q [B, H, S, K], k [B, G, T, K], v [B, G, T, Kv]; ``out_BHSK`` of what is returned is [B, H, S, Kv].
    """
    if is_autocast_on(q_BHSK):
        q_BHSK, k_BGTK, v_BGTK = lower(q_BHSK, k_BGTK, v_BGTK)
    with torch.autocast(q_BHSK.device.type, enabled=False) if is_autocast_on(q_BHSK) else nullcontext():
        return compute_recorded(
            make_request(
                scheme, q_BHSK, k_BGTK, v_BGTK, qpos, kpos, mask_BHST,
                causal=causal, scale=scale, rotated=rotated, dropout=dropout,
            )
        )  # fmt: skip


def compute_recorded(request: AttentionRequest, *, rotate_back: bool = True) -> RecordedAttention:
    """Call every hook in its order, and keep every tensor; ``rotate_back``: also call the last hook."""
    # ``encode`` and ``locate`` come before attention, and ``make_request`` has rotated q, k and v.
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
    if rotate_back:
        out = scheme.rotate_back(out, at.qpos, at.kpos)
    return RecordedAttention(
        scheme=scheme, q_BHSK=at.q, k_BHTK=at.k, v_BHTK=v, bias_BHST=bias, logits_BHST=logits, weights_BHST=weights,
        out_BHSK=out, scale=request.scale, mask_BHST=mask,
    )  # fmt: skip


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
    """Compute the attended values step by step: [B, H, S, Kv]. ``attend`` rotates those of any kernel back."""
    return compute_recorded(request, rotate_back=False).out_BHSK
