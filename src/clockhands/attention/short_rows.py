"""Attention over few tokens in many rows on a CPU: matrix products of all heads at once, and a softmax for short rows.

PyTorch's fused kernel calls two products for each head, and its softmax goes through the keys of one query at a time.
At the lengths of the studies, some 12 tokens, that costs more than the arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch

from clockhands.attention.request import AttentionRequest, refuse_second_derivative
from clockhands.schemes.scheme import softmax
from clockhands.shapes import Bool, Float, Tensor

LONGEST = 20
"""Queries and keys up to which this is faster than the fused kernel, with at least ``MANY_HEADS`` heads in a batch."""
MANY_HEADS = 128
WIDEST = 80.0
"""Logits that may lie between any two of a batch: the exponential of more would be 0 or denormal in float32."""


def serves(request: AttentionRequest) -> bool:
    """Return whether this is the fastest way: many heads of few tokens, in float32 on a CPU, and no sinks."""
    q = request.q_BHSK
    return (
        1 < q.shape[2] <= LONGEST
        and request.num_keys <= LONGEST
        and q.shape[0] * q.shape[1] >= MANY_HEADS
        and q.device.type == "cpu"
        and q.dtype == torch.float32
        and request.sink_H is None
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute softmax(scale·q·kᵀ + bias)·v: [B, H, S, Kv]."""
    mask = request.compute_mask() if request.causal or request.mask_BHST is not None else None
    out: Tensor = _ShortRows.apply(
        request.q_BHSK, request.k_BHTK, request.v_BHTK, request.compute_bias(), mask, request.scale, request.dropout
    )
    return out


def _weigh(logits_BHST: Float[Tensor, "B H S T"], mask: Bool[Tensor, "#B #H S T"] | None) -> Float[Tensor, "B H S T"]:
    """Return the softmax over the keys, in place: with one shift for the whole batch where its logits lie close.

    A row without keys becomes zeros.
    """
    low, high = torch.aminmax(logits_BHST)
    if not bool(high - low < WIDEST):  # -inf in a bias and NaN among them
        return softmax(logits_BHST if mask is None else logits_BHST.masked_fill_(~mask, -torch.inf))
    weights = logits_BHST.sub_(high).exp_()
    if mask is not None:
        weights.mul_(mask)
    return weights.div_(weights.sum(-1, keepdim=True).clamp_(min=torch.finfo(weights.dtype).tiny))


class _ShortRows(torch.autograd.Function):
    """The products of all heads as one batch of small matrices, and their gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float, rate: float
    ) -> Tensor:
        q_NSK, k_NTK, v_NTK = (x.flatten(0, 1) for x in (q, k, v))
        logits = torch.bmm(q_NSK, k_NTK.transpose(1, 2)).mul_(scale).view(*q.shape[:3], k.shape[2])
        weights = _weigh(logits if bias is None else logits.add_(bias), mask)
        # The numbers that PyTorch's own dropout draws, in its order.
        noise = torch.empty_like(weights).bernoulli_(1 - rate).div_(1 - rate) if rate else None
        kept = weights if noise is None else weights * noise
        out = q.new_empty(*q.shape[:3], v.shape[3])  # no view of what is saved: the caller may write into it
        torch.bmm(kept.flatten(0, 1), v_NTK, out=out.view(-1, *out.shape[2:]))
        ctx.save_for_backward(q_NSK, k_NTK, v_NTK, weights, noise, kept)
        ctx.scale, ctx.bias_shape = scale, None if bias is None else bias.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
        q_NSK, k_NTK, v_NTK, weights, noise, kept = ctx.saved_tensors
        grad_NSK = grads[0].flatten(0, 1)
        dv_NTK = torch.bmm(kept.flatten(0, 1).transpose(1, 2), grad_NSK)
        error_NST = torch.bmm(grad_NSK, v_NTK.transpose(1, 2))
        if noise is not None:
            error_NST.mul_(noise.flatten(0, 1))
        weights_NST = weights.flatten(0, 1)
        # The gradient of a logit is w (dw - Σ w dw).
        error_NST.sub_((weights_NST * error_NST).sum(-1, keepdim=True)).mul_(weights_NST)
        dbias = error_NST.view_as(weights).sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[3] else None
        if ctx.needs_input_grad[3]:
            error_NST = error_NST * ctx.scale  # the bias may have been given its gradient without a copy
        else:
            error_NST.mul_(ctx.scale)
        dq_NSK, dk_NTK = torch.bmm(error_NST, k_NTK), torch.bmm(error_NST.transpose(1, 2), q_NSK)
        dq, dk, dv = (x.unflatten(0, weights.shape[:2]) for x in (dq_NSK, dk_NTK, dv_NTK))
        return dq, dk, dv, dbias, None, None, None
