"""A bias by distance on a CPU: tiles for the heads that need them, one more channel of the keys for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch

from clockhands.attention import extra_channel
from clockhands.attention.distance_tiles import attend_by_tiles, make_causal_curve
from clockhands.attention.line import Line
from clockhands.attention.request import AttentionRequest
from clockhands.schemes.distance import DistanceBias
from clockhands.shapes import Float, Tensor


def serves(request: AttentionRequest) -> bool:
    """Return whether the bias is a function of the distance of tokens on a line, and tiles are worth their set-up."""
    scheme, pos = request.scheme, (request.qpos, request.kpos)
    return (
        "bias" in request.hooks
        and isinstance(scheme, DistanceBias)
        and (request.num_keys > extra_channel.SHORT or scheme.needs_gradient)
        and request.q_BHSK.device.type == "cpu"
        and not any(x.is_floating_point() for x in pos)
        and request.num_queries >= extra_channel.FEW_QUERIES
        and not torch.compiler.is_compiling()
        and request.line is not None
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the heads whose row fits into a channel by the fused kernel, and the others by tiles: [B, H, S, Kv]."""
    line, curve, queries = cast(Line, request.line), request.curve_HN, request.num_queries
    by_channel_H = _fit_a_channel(request)
    if request.causal:
        curve = curve + make_causal_curve(curve.shape[1], line.get_offset(queries - 1), curve.device)
    with_channel, with_tiles = by_channel_H.nonzero()[:, 0], (~by_channel_H).nonzero()[:, 0]
    if not len(with_channel):
        return attend_by_tiles(request, curve, line)
    row = _make_middle_row(request)
    if not len(with_tiles):
        return extra_channel.attend_with_row(request, row)
    by_tiles = attend_by_tiles(_take_heads(request, with_tiles), curve[with_tiles], line)
    by_channel = extra_channel.attend_with_row(_take_heads(request, with_channel), row[:, with_channel])
    out, order = torch.cat([by_tiles, by_channel], dim=1), torch.cat([with_tiles, with_channel])
    return out if bool((order.diff() > 0).all()) else out.index_select(1, order.argsort())


def _fit_a_channel(request: AttentionRequest) -> Tensor:
    """Return for which heads one more channel serves, [H]; none if rows of the bias differ by more than a constant."""
    scheme = cast(DistanceBias, request.scheme)
    # In 16 bits the gradient of the row would be a sum of rounded numbers that nearly cancel.
    coarse = scheme.needs_gradient and request.low_precision
    if scheme.queries_share_bias_row and not coarse and extra_channel.is_possible(request):
        return extra_channel.fits_channel(_make_middle_row(request), request.q_BHSK.dtype)
    return torch.zeros(len(request.curve_HN), dtype=torch.bool)


def _make_middle_row(request: AttentionRequest) -> Float[Tensor, "1 H T"]:
    """Return the bias of the middle query, read off the curve: [1, H, T]."""
    line, keys = cast(Line, request.line), request.num_keys
    place_T = line.list_offsets(keys, request.curve_HN.device)
    return request.curve_HN[:, line.get_offset(request.num_queries // 2) + place_T[-1] - place_T][None]


def _take_heads(request: AttentionRequest, heads: Tensor) -> AttentionRequest:
    """Return the same request for some heads only."""
    q, k, v, mask = (_select(x, heads) for x in (request.q_BHSK, request.k_BHTK, request.v_BHTK, request.mask_BHST))
    return replace(request, q_BHSK=q, k_BHTK=k, v_BHTK=v, mask_BHST=mask)


def _select(x: Any, heads: Tensor) -> Any:
    """Return some heads of a tensor, as a view if they are neighbours; of a mask that all heads share, or None, all."""
    if x is None or x.shape[1] == 1:
        return x
    first, last = int(heads[0]), int(heads[-1])
    return x[:, first : last + 1] if last - first + 1 == len(heads) else x.index_select(1, heads)
