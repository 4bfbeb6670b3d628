"""Attention sinks beside PyTorch's fused kernel of a CPU, which knows no sinks.

With a sink of logit s and value 0, ln(e^s + Σ e^ℓ) takes the place of ln Σ e^ℓ, and the output is smaller by the
quotient of the two sums. The kernel returns the logarithm of its sum, and its backward pass computes the weights again
from that logarithm. So, given the new logarithm and the new output, the kernel itself computes the gradients of
queries, keys and values, and no logit is made outside of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from clockhands.attention.request import AttentionRequest
from clockhands.shapes import Float, Tensor

# No public function of PyTorch returns the logarithms of a CPU. ``scaled_dot_product_attention`` calls these two.
_KERNEL = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_KERNEL_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def fuses_sinks(request: AttentionRequest) -> bool:
    """Return whether the fused kernel serves a request with sinks.

    It serves on a CPU, without dropout, which it has not, and for values no wider than queries.
    """
    return (
        request.q_BHSK.device.type == "cpu"
        and not request.dropout
        and request.v_BHTK.shape[-1] <= request.q_BHSK.shape[-1]
        and min(request.q_BHSK.numel(), request.k_BHTK.numel()) > 0  # called directly, it divides by the number of keys
        and not torch.compiler.is_compiling()
        # ONNX has the operations of other kernels, and not these two.
        and not torch.jit.is_tracing()  # type: ignore[attr-defined]
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
    """The fused kernel with sinks, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sink: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        out, logsum = _KERNEL(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
        total = torch.logaddexp(logsum, sink)
        # A query that may attend to no key has zeros here already, and any finite logarithm.
        out.mul_((logsum - total).exp_()[..., None])
        ctx.save_for_backward(q, k, v, sink, mask, out, total)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
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
