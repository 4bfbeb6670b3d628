"""Attention in one piece, with its whole bias: PyTorch's fused kernel, or matrix products where those are faster."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F

from clockhands.attention.request import LOW_PRECISION, AttentionRequest, refuse_second_derivative
from clockhands.schemes.content.sinks import softmax_with_sinks
from clockhands.schemes.distance import DistanceBias
from clockhands.schemes.position_checks import is_traced
from clockhands.schemes.scheme import softmax
from clockhands.shapes import Float, Tensor

SHORT = 128
"""Keys up to which the mask of a bias that is not learned is kept."""
MANY_ROWS = 64
"""Batch rows from which on, with one query in each, matrix products beat the fused kernel."""
# No public function of PyTorch returns the logarithms of a CPU. ``scaled_dot_product_attention`` calls these two.
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_KERNEL_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def serves(request: AttentionRequest) -> bool:
    """Accept every request: those whose scheme needs whole rows have been served before."""
    return True


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute attention by one call for all queries: [B, H, S, Kv].

    ``is_causal`` of the fused kernel aligns at the top left, so it serves only where S equals T. It masks before it
    scales, so it serves only a scale above 0: -inf times 0 is NaN.
    """
    q, k, v, causal = request.q_BHSK, request.k_BHTK, request.v_BHTK, request.causal
    with_sinks = request.sink_H is not None
    queries, keys = q.shape[2], k.shape[2]
    if request.scheme.fixed_curve and _keeps_mask(request):
        scheme = cast(DistanceBias, request.scheme)
        numbers = (item for item in vars(scheme).items() if isinstance(item[1], (int, float, str, type(None))))
        key = (causal, q.dtype, *numbers)
        mask = scheme.short_masks(request.qpos, key, lambda *_: _make_mask(request, request.compute_bias()))
        return call_fused_kernel(q, k, v, attn_mask=mask, scale=request.scale, dropout_p=request.dropout)
    bias_BHST = None if request.added_BHST is None and "bias" not in request.hooks else request.compute_bias()
    # Many queries in float32 without a bias are what the fused kernel was made for, everywhere.
    usual = bias_BHST is None and queries > 1 and q.dtype not in LOW_PRECISION
    plain = not usual and _prefers_plain_products(q, k, bias_BHST)
    if plain or (with_sinks and not fuses_sinks(request)):
        return _compute_by_plain_products(request, bias_BHST)
    options: dict[str, Any] = {"scale": request.scale}
    if with_sinks:
        options["sink_BHS"] = spread_sinks(request)
    else:
        options["dropout_p"] = request.dropout
    # Where values are as wide as queries and no sink stands beside them, PyTorch's own function needs no help.
    call = call_fused_kernel if with_sinks or v.shape[-1] != q.shape[-1] else F.scaled_dot_product_attention
    alone = queries == 1
    aligned = alone or (queries == keys and request.scale > 0)
    if bias_BHST is None and request.mask_BHST is None and (not causal or aligned):
        # With dynamic shapes torch.compile makes no bool of a comparison; the kernel wants one, and a branch gives it.
        is_causal = True if causal and not alone else False  # noqa: SIM210
        return call(q, k, v, is_causal=is_causal, **options)
    return call(q, k, v, attn_mask=_make_mask(request, bias_BHST), **options)


def _make_mask(request: AttentionRequest, bias_BHST: Tensor | None) -> Tensor:
    """Return the mask and the bias as one ``attn_mask``."""
    if bias_BHST is None:
        return request.compute_mask()
    # The fused kernel of a CPU takes a float32 mask with low-precision queries, and adds it in float32.
    mask = bias_BHST.to(torch.promote_types(request.q_BHSK.dtype, torch.float32))
    if request.causal or request.mask_BHST is not None:
        mask = mask.masked_fill(~request.compute_mask(), -math.inf)
    return mask


def _keeps_mask(request: AttentionRequest) -> bool:
    """Return whether the mask of a short text is kept for the next layer: a bias by distance that is not learned."""
    scheme, q = request.scheme, request.q_BHSK
    return (
        "fixed_curve" in vars(type(scheme))
        and not is_traced()  # before any size: one program for every length
        and request.qpos is request.kpos
        and 1 < request.num_keys <= SHORT
        and request.mask_BHST is request.added_BHST is request.sink_H is None
        and q.device.type == "cpu"
        and q.dtype not in LOW_PRECISION
        and next(scheme.parameters(), None) is None
    )


def call_fused_kernel(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    *,
    sink_BHS: Float[Tensor, "*#BHS"] | None = None,
    **rest: Any,
) -> Float[Tensor, "B H S Kv"]:
    """Call PyTorch's fused kernel, with sinks of these logits if there are any (``fuses_sinks``): [B, H, S, Kv].

    On a CPU it takes values as wide as the queries; for narrower ones it would make all weights, so they are padded.
    """
    missing = q_BHSK.shape[-1] - v_BHTK.shape[-1]
    if missing > 0 and q_BHSK.device.type == "cpu" and (q_BHSK.shape[-2] > 1 or sink_BHS is not None):
        v_BHTK = F.pad(v_BHTK, (0, missing))
        return call_fused_kernel(q_BHSK, k_BHTK, v_BHTK, sink_BHS=sink_BHS, **rest)[..., :-missing]
    if sink_BHS is not None:
        return attend_with_sinks(q_BHSK, k_BHTK, v_BHTK, sink_BHS, **rest)
    return F.scaled_dot_product_attention(q_BHSK, k_BHTK, v_BHTK, **rest)


def spread_sinks(request: AttentionRequest) -> Float[Tensor, "H 1"] | None:
    """Return the logits of a request's sinks as ``call_fused_kernel`` takes them, for all queries: [H, 1]."""
    return None if request.sink_H is None else request.sink_H[:, None]


def _prefers_plain_products(
    q_BHSK: Float[Tensor, "B H S K"], k_BHTK: Float[Tensor, "B H T K"], bias_BHST: Float[Tensor, "#B #H S T"] | None
) -> bool:
    """Return whether matrix products around a softmax beat the fused kernel, as measured on a CPU with torch 2.13.

    On a GPU they serve 16-bit queries with a bias, and nothing else: its fused kernels take a bias in the type of the
    queries, in which it would be too coarse. Of another type the memory-efficient one refuses it, and cuDNN's reads it
    as if it were of theirs (https://github.com/pytorch/pytorch/pull/191612).

    On a CPU the fused kernel is slower than matrix products in three cases: 2 to 4 times in the backward pass in
    bfloat16 with up to some 1,000 keys; with a bias that collects a gradient, for which it has only a slow form; and
    1.3 to 1.6 times with one query in each of ``MANY_ROWS`` or more batch rows.
    """
    if q_BHSK.device.type != "cpu":
        return bias_BHST is not None and q_BHSK.dtype in LOW_PRECISION
    if is_traced():
        # A compiler makes the best of the kernel; torch.func differentiates products, and not the kernel's mask.
        return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None
    if q_BHSK.shape[-2] == 1:
        return q_BHSK.shape[0] >= MANY_ROWS
    learned = bias_BHST is not None and bias_BHST.requires_grad and torch.is_grad_enabled()
    return learned or (q_BHSK.dtype in LOW_PRECISION and k_BHTK.shape[-2] <= 1024)


def _compute_by_plain_products(request: AttentionRequest, bias: Tensor | None) -> Tensor:
    """Compute softmax(scale·q·kᵀ + bias)·v by matrix products, the softmax in float32 with a bias or sinks."""
    q, k, v, sink_H = request.q_BHSK, request.k_BHTK, request.v_BHTK, request.sink_H
    masked = request.mask_BHST is not None
    logits = (q * request.scale) @ k.transpose(-1, -2)
    if bias is not None or sink_H is not None:
        logits = logits.to(torch.promote_types(q.dtype, torch.float32))
    if bias is not None:
        logits += bias
    if masked or (request.causal and request.num_queries > 1):
        logits.masked_fill_(~request.compute_mask(), -math.inf)
    if sink_H is not None:
        return F.dropout(softmax_with_sinks(logits, sink_H).to(v.dtype), request.dropout) @ v
    # A row of -inf needs the careful softmax, which costs twice as much. A GPU would have to be waited for to know.
    without_keys = (masked or bias is not None) and (
        q.device.type != "cpu" or is_traced() or bool((logits.detach().amax(-1) == -math.inf).any())
    )
    weights = softmax(logits) if without_keys else torch.softmax(logits, dim=-1)
    return F.dropout(weights.to(v.dtype), request.dropout) @ v


def fuses_sinks(request: AttentionRequest) -> bool:
    """Return whether the fused kernel serves a request with sinks.

    It serves on a CPU, without dropout, which it has not, and for values no wider than queries.
    """
    return (
        request.q_BHSK.device.type == "cpu"
        and not request.dropout
        and request.v_BHTK.shape[-1] <= request.q_BHSK.shape[-1]
        and min(request.q_BHSK.numel(), request.k_BHTK.numel()) > 0  # called directly, it divides by the number of keys
        and not is_traced()  # ONNX has the operations of other kernels, and not these two
    )


def attend_with_sinks(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T K"],
    sink_BHS: Float[Tensor, "*#BHS"],
    *,
    scale: float,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "B H S K"]:
    """Compute attention whose softmax has a sink of these logits beside the keys: [B, H, S, K].

    The other arguments are those of ``scaled_dot_product_attention``; ``attn_mask`` gets no gradient. The logits of
    sinks have the type of the kernel's logarithms, which is float32 or float64.
    """
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q_BHSK.dtype).masked_fill_(~attn_mask, -torch.inf)
    # Called directly, the kernel wants channels that lie beside each other.
    q, k, v = [x if x.stride(-1) == 1 else x.contiguous() for x in (q_BHSK, k_BHTK, v_BHTK)]
    out: Tensor = _WithSinks.apply(q, k, v, sink_BHS, attn_mask, is_causal, scale)
    return out


class _WithSinks(torch.autograd.Function):
    """The fused kernel with sinks, and its gradient.

    With a sink of logit s and value 0, ln(e^s + Σ e^ℓ) takes the place of ln Σ e^ℓ, and the output is smaller by the
    quotient of the two sums. The kernel returns the logarithm of its sum, and its backward pass computes the weights
    again from that logarithm. So, given the new logarithm and the new output, the kernel itself computes the gradients
    of queries, keys and values, and no logit is made outside of it.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        out, logsum = _KERNEL(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
        # ln(e^a + e^b) without either power, which could overflow.
        total = torch.logaddexp(logsum, sink)
        # A query that may attend to no key has zeros here already, and any finite logarithm.
        out.mul_((logsum - total).exp_()[..., None])
        ctx.save_for_backward(q, k, v, sink, mask, out, total)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
        (gradient,), (q, k, v, sink, mask, out, total) = grads, ctx.saved_tensors
        dqkv = _KERNEL_BACKWARD(
            gradient, q, k, v, out, total, 0.0, ctx.causal, attn_mask=mask, scale=ctx.scale
        )  # fmt: skip
        dsink = None
        if ctx.needs_input_grad[3]:
            # The gradient of a logit is w (dw - Σ w dw). For a sink dw is 0, since its value is, and the sum of a row
            # is the product of its output and gradient.
            row_sums = (gradient.to(total.dtype) * out).sum(-1)
            dsink = -(sink - total).exp_().mul_(row_sums).sum_to_size(sink.shape)
        return *dqkv, dsink, None, None, None
