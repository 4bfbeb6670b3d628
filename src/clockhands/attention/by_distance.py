"""A bias by distance on a CPU: one more channel of the keys where that can hold it, and tiles of queries elsewhere.

Where the rows of a bias differ by a constant each, as those of -m·(i - j) do, softmax cannot tell them apart, and one
row is enough: queries gain a channel of ones, keys that row, and the plain fused kernel serves. Masked keys fit into
the same channel. Other heads go through tiles, and so does the causal mask alone in 16 bits, which is a bias by
distance too. Short texts go through the fused kernel whole, with a view of the curve as its mask.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch

from clockhands.attention.fused_kernel import call_fused_kernel
from clockhands.attention.request import LOW_PRECISION, AttentionRequest, Runs
from clockhands.attention.tiles import attend_by_tiles, make_causal_curve
from clockhands.schemes.distance import DistanceBias
from clockhands.shapes import Bool, Float, Tensor

WIDEST, WIDEST_LOW = 80.0, 1024.0
"""Logits that a row may span, in float32 or float64 and in 16 bits (``fits_channel``)."""
FEW_QUERIES, SHORT = 16, 128
"""With fewer queries than the first, or no more keys than the second, another kernel is faster."""
NEAR = 512
"""Up to this number of keys the whole bias, read from the curve in place, is faster than channels and tiles."""
LONG = 512
"""With this number of queries or more, tiles are faster than the fused kernel under a causal mask alone in 16 bits."""


def serves(request: AttentionRequest) -> bool:
    """Return whether tiles serve and are worth their set-up, or one row of the bias stands for all and fits."""
    with_bias = "bias" in request.hooks
    if not (with_bias or request.low_precision) or request.q_BHSK.device.type != "cpu":
        return False
    if with_bias:
        return _has_curve(request) or (request.num_keys > SHORT and bool(_fit_a_channel(request).all()))
    return (
        request.causal
        and request.mask_BHST is None
        and LONG <= request.num_queries <= request.num_keys
        and not has_fast_low_precision()
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the heads whose row fits into a channel by the fused kernel, and the others by tiles: [B, H, S, Kv]."""
    queries, keys, device = request.num_queries, request.num_keys, request.q_BHSK.device
    if "bias" not in request.hooks:
        curve = make_causal_curve(queries + keys - 1, queries - 1, device)
        return attend_by_tiles(request, curve, Runs(keys, 1))
    if not _has_curve(request):
        return _attend_with_row(request, request.middle_row_BHT)
    line, curve = cast(Runs, request.line), request.curve_HN
    if request.causal:
        # What causal hides are the distances below 0, at the beginning of the curve.
        curve = curve + make_causal_curve(curve.shape[1], line.get_offset(queries - 1), device)
    if _is_read_in_place(request, line):
        # With keys from right to left the distance of query i and key j is a constant plus i + j.
        curve = curve.to(request.q_BHSK.dtype).contiguous()
        mask = curve.as_strided((1, len(curve), queries, keys), (0, curve.stride(0), 1, 1))
        k, v = request.k_BHTK.flip(2), request.v_BHTK.flip(2)
        return call_fused_kernel(request.q_BHSK, k, v, attn_mask=mask, scale=request.scale)
    by_channel_H = _fit_a_channel(request)
    with_channel, with_tiles = by_channel_H.nonzero()[:, 0], (~by_channel_H).nonzero()[:, 0]
    if not len(with_channel):
        return attend_by_tiles(request, curve, line)
    row = request.middle_row_BHT
    if not len(with_tiles):
        return _attend_with_row(request, row)
    by_tiles = attend_by_tiles(_take_heads(request, with_tiles), curve[with_tiles], line)
    by_channel = _attend_with_row(_take_heads(request, with_channel), row[:, with_channel])
    out, order = torch.cat([by_tiles, by_channel], dim=1), torch.cat([with_tiles, with_channel])
    # Heads are sorted back only where they are not in order: ALiBi's steep heads, which need tiles, come first.
    return out if bool((order.diff() > 0).all()) else out.index_select(1, order.argsort())


def _has_curve(request: AttentionRequest) -> bool:
    """Return whether the bias is a function of the distance of tokens on a line, and tiles are worth their set-up."""
    scheme = request.scheme
    return (
        isinstance(scheme, DistanceBias)
        and (request.num_keys > SHORT or scheme.needs_gradient)
        and not (request.qpos.is_floating_point() or request.kpos.is_floating_point())
        and request.num_queries >= FEW_QUERIES
        and request.line is not None
    )


def _is_read_in_place(request: AttentionRequest, line: Runs) -> bool:
    """Return whether the fused kernel takes the curve as a mask: for a short text, of which nothing else is hidden."""
    return (
        request.num_queries <= request.num_keys <= min(NEAR, line.run)
        and request.mask_BHST is None
        and request.sink_H is None
        and not (request.dropout or request.low_precision or request.curve_HN.requires_grad)
        and bool(request.curve_HN.isfinite().all())
    )


def _fit_a_channel(request: AttentionRequest) -> Bool[Tensor, " H"]:
    """Return for which heads one more channel serves, [H]; none if rows of the bias differ by more than a constant."""
    if request.scheme.queries_share_bias_row and _can_add_a_channel(request):
        row = request.middle_row_BHT
        # In 16 bits the gradient of the row would be a sum of rounded numbers that nearly cancel.
        if not (row.requires_grad and request.low_precision):
            return fits_channel(row, request.q_BHSK.dtype)
    return torch.zeros(request.q_BHSK.shape[1], dtype=torch.bool)


def _can_add_a_channel(request: AttentionRequest) -> bool:
    """Return whether one more channel for the fused kernel of a CPU is possible and fast.

    That kernel has no dropout. The channel holds the row divided by ``scale``, which must not be so small that the
    numbers are infinite, nor below 0, where what hides a key would attract every query. Beside a sink the constants
    that a row leaves out would count.
    """
    mask, dtype = request.mask_BHST, request.q_BHSK.dtype
    # The channel can hide whole keys; ``is_causal`` hides the rest, and aligns at the top left.
    maskable = (mask is None or mask.shape[2] == 1) and (not request.causal or request.num_queries == request.num_keys)
    return (
        maskable
        and request.scale * torch.finfo(dtype).max > 3 * _get_widest(dtype)
        and (not request.low_precision or has_fast_low_precision())
        and request.num_queries >= FEW_QUERIES
        and request.v_BHTK.shape[-1] <= request.q_BHSK.shape[-1]
        and not request.dropout
        and request.sink_H is None
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


def _attend_with_row(request: AttentionRequest, row_BHT: Float[Tensor, "#B H T"]) -> Float[Tensor, "B H S Kv"]:
    """Compute attention whose bias is ``row_BHT`` and a constant for every query: [B, H, S, Kv]."""
    q_BHSK, k_BHTK, mask = request.q_BHSK, request.k_BHTK, request.mask_BHST
    # Centred on 0, where the numbers of a type are finest; a constant changes no softmax.
    middle_BH1 = (row_BHT.amax(-1, keepdim=True) + row_BHT.amin(-1, keepdim=True)).detach() / 2
    row_BHT = (row_BHT - middle_BH1) / request.scale
    parts = [row_BHT.to(q_BHSK.dtype)]
    if request.low_precision:
        # 16 bits take two channels, the rounded number and what rounding left.
        parts.append((row_BHT - parts[0]).to(q_BHSK.dtype))
    if mask is not None:
        # Half of the lowest number, so that adding q·k does not overflow to -inf.
        parts[0] = parts[0].masked_fill(~mask[:, :, 0], torch.finfo(q_BHSK.dtype).min / 2)
    q = torch.cat([q_BHSK, q_BHSK.new_ones(()).expand(*q_BHSK.shape[:3], len(parts))], dim=-1)
    k = torch.cat([k_BHTK, *(part[..., None].expand(*k_BHTK.shape[:3], 1) for part in parts)], dim=-1)
    out = call_fused_kernel(q, k, request.v_BHTK, is_causal=request.causal, scale=request.scale)
    if mask is None:
        return out
    # The fused kernel would give queries that may attend to no key the mean of all values.
    seen_BHT = mask[:, :, 0]
    nothing_BHS = seen_BHT.cumsum(-1) == 0 if request.causal else ~seen_BHT.any(-1, keepdim=True)
    return out.masked_fill(nothing_BHS[..., None], 0.0)


def _take_heads(request: AttentionRequest, heads: Tensor) -> AttentionRequest:
    """Return the same request for some heads only."""
    q, k, v = _select(request.q_BHSK, heads), _select(request.k_BHTK, heads), _select(request.v_BHTK, heads)
    return replace(request, q_BHSK=q, k_BHTK=k, v_BHTK=v, mask_BHST=_select(request.mask_BHST, heads))


def _select(x: Any, heads: Tensor) -> Any:
    """Return some heads of a tensor, as a view if they are neighbours; of a mask that all heads share, or None, all."""
    if x is None or x.shape[1] == 1:
        return x
    first, last = int(heads[0]), int(heads[-1])
    return x[:, first : last + 1] if last - first + 1 == len(heads) else x.index_select(1, heads)
