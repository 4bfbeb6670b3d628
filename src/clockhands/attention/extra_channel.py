"""A bias that fits into one more channel of the keys, so that the plain fused kernel of a CPU serves.

Where the rows of a bias differ by a constant each, as those of -m·(i - j) do, softmax cannot tell them apart, and one
row is enough: queries gain a channel of ones, keys that row. Masked keys fit into the same channel.
"""

from __future__ import annotations

from functools import cache

import torch

from clockhands.attention.fused_kernel import call_fused_kernel
from clockhands.attention.request import LOW_PRECISION, AttentionRequest, Mask
from clockhands.shapes import Bool, Float, Tensor

WIDEST, WIDEST_LOW = 80.0, 1024.0
"""Logits that a row may span, in float32 or float64 and in 16 bits (``fits_channel``)."""
FEW_QUERIES, SHORT = 16, 128
"""With fewer queries than the first, or no more keys than the second, another kernel is faster."""


def serves(request: AttentionRequest) -> bool:
    """Return whether one row of the bias stands for all, and fits into a channel."""
    if (
        "bias" not in request.hooks
        or not request.scheme.queries_share_bias_row
        or request.num_keys <= SHORT
        or not is_possible(request)
    ):
        return False
    row = request.middle_row_BHT
    # In 16 bits the gradient of the row would be a sum of rounded numbers that nearly cancel.
    return bool(fits_channel(row, request.q_BHSK.dtype).all()) and not (row.requires_grad and request.low_precision)


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values, with the bias of a query at the middle key for all queries: [B, H, S, Kv]."""
    return attend_with_row(request, request.middle_row_BHT)


def is_possible(request: AttentionRequest) -> bool:
    """Return whether one more channel for the fused kernel of a CPU is possible and fast.

    That kernel has no dropout. A GPU has FlexAttention, and its fused kernels want widths that 8 divides. The channel
    holds the row divided by ``scale``, which must not be so small that the numbers are infinite, nor below 0, where
    what hides a key would attract every query. Beside a sink the constants that a row leaves out would count.
    """
    mask, dtype = request.mask_BHST, request.q_BHSK.dtype
    # The channel can hide whole keys; ``is_causal`` hides the rest, and aligns at the top left.
    maskable = (mask is None or mask.shape[2] == 1) and (not request.causal or request.num_queries == request.num_keys)
    return (
        maskable
        and request.scale * torch.finfo(dtype).max > 3 * _get_widest(dtype)
        and (not request.low_precision or has_fast_low_precision())
        and request.q_BHSK.device.type == "cpu"
        and request.num_queries >= FEW_QUERIES
        and request.v_BHTK.shape[-1] <= request.q_BHSK.shape[-1]
        and not request.dropout
        and request.sink_H is None
        and not torch.compiler.is_compiling()
    )


@cache
def has_fast_low_precision() -> bool:
    """Return whether this processor multiplies tiles of 16-bit numbers (Intel's AMX).

    PyTorch's fused kernel is then the fastest in bfloat16 too.
    """
    return bool(torch.cpu._is_amx_tile_supported())


def fits_channel(row_BHT: Float[Tensor, "#B H T"], dtype: torch.dtype) -> Bool[Tensor, " H"]:
    """Return for which heads the row spans so few logits that a channel can hold it: [H].

    In float32 the limit is 80 logits: weights of less than e^-80 of the largest can be subnormal numbers, with which an
    Intel core computes a hundred times more slowly, and numbers of up to 40 added to q·k round it by 2^-18 at most. In
    16 bits it is 1,024: the two channels hold 17 bits of numbers of up to 512, so that the error is at most 2^-8, as
    large as the rounding of a number near 1 in bfloat16.
    """
    return (row_BHT.amax(-1) - row_BHT.amin(-1)).amax(0) <= _get_widest(dtype)


def _get_widest(dtype: torch.dtype) -> float:
    """Return how many logits a row may span in a channel of this dtype."""
    return WIDEST_LOW if dtype in LOW_PRECISION else WIDEST


def attend_with_row(request: AttentionRequest, row_BHT: Float[Tensor, "#B H T"]) -> Float[Tensor, "B H S Kv"]:
    """Compute attention whose bias is ``row_BHT`` and a constant for every query: [B, H, S, Kv].

    16-bit types take two channels, a high and a low part.
    """
    q_BHSK, k_BHTK, mask = request.q_BHSK, request.k_BHTK, request.mask_BHST
    middle_BH1 = (row_BHT.amax(-1, keepdim=True) + row_BHT.amin(-1, keepdim=True)).detach() / 2
    row_BHT = (row_BHT - middle_BH1) / request.scale
    parts = [row_BHT.to(q_BHSK.dtype)]
    if request.low_precision:
        parts.append((row_BHT - parts[0]).to(q_BHSK.dtype))
    if mask is not None:
        # Half of the lowest number, so that adding q·k does not overflow to -inf.
        parts[0] = parts[0].masked_fill(~mask[:, :, 0], torch.finfo(q_BHSK.dtype).min / 2)
    q = torch.cat([q_BHSK, q_BHSK.new_ones(()).expand(*q_BHSK.shape[:3], len(parts))], dim=-1)
    k = torch.cat([k_BHTK, *(part[..., None].expand(*k_BHTK.shape[:3], 1) for part in parts)], dim=-1)
    out = call_fused_kernel(q, k, request.v_BHTK, is_causal=request.causal, scale=request.scale)
    return out if mask is None else out.masked_fill(_find_queries_without_keys(mask, request.causal)[..., None], 0.0)


def _find_queries_without_keys(mask_BHST: Mask, causal: bool) -> Bool[Tensor, "#B #H S"]:
    """Return which queries may attend to no key; the fused kernel would give them the mean of all values."""
    mask_BHT = mask_BHST[:, :, 0]
    return mask_BHT.cumsum(-1) == 0 if causal else ~mask_BHT.any(-1, keepdim=True)
