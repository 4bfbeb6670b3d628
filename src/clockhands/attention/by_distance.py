"""A bias by distance on a CPU: tiles for the heads that need them, one more channel of the keys for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from clockhands.attention import extra_channel
from clockhands.attention.distance_tiles import attend_by_tiles, causal_curve
from clockhands.attention.request import AttentionRequest
from clockhands.schemes.distance import DistanceBias
from clockhands.shapes import Float, Tensor

__all__ = ["compute", "serves"]


def serves(request: AttentionRequest) -> bool:
    """Whether the bias is a function of the distance of tokens on a line, and tiles are worth their set-up."""
    scheme, pos = request.scheme, (request.qpos_BS, request.kpos_BT)
    return (
        "bias" in request.hooks
        and isinstance(scheme, DistanceBias)
        and (request.keys > extra_channel.SHORT or scheme.learned)
        and request.q_BHSK.device.type == "cpu"
        and not any(x.is_floating_point() for x in pos)
        and request.queries >= extra_channel.FEW_QUERIES
        and not torch.compiler.is_compiling()
        and request.line is not None
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the heads whose row fits into a channel by the fused kernel, and the others by tiles: [B, H, S, Kv]."""
    line, curve, queries = request.line, request.curve_HN, request.queries
    assert line is not None
    by_channel_H = _fit_a_channel(request)
    if request.causal:
        curve = curve + causal_curve(curve.shape[1], line.place(queries - 1), curve.device)
    flat, steep = by_channel_H.nonzero()[:, 0], (~by_channel_H).nonzero()[:, 0]
    if not len(flat):
        return attend_by_tiles(request, curve, line)
    row = _row(request)
    if not len(steep):
        return extra_channel.attend_with_row(request, row)
    by_tiles = attend_by_tiles(_take_heads(request, steep), curve[steep], line)
    by_channel = extra_channel.attend_with_row(_take_heads(request, flat), row[:, flat])
    out, order = torch.cat([by_tiles, by_channel], dim=1), torch.cat([steep, flat])
    return out if bool((order.diff() > 0).all()) else out.index_select(1, order.argsort())


def _fit_a_channel(request: AttentionRequest) -> Tensor:
    """Tell which heads one more channel serves: [H]. None where the rows of the bias are not parallel."""
    scheme = request.scheme
    assert isinstance(scheme, DistanceBias)
    summed = scheme.learned and request.low_precision
    if scheme.parallel and not summed and extra_channel.possible(request):
        return extra_channel.fits(_row(request), request.q_BHSK.dtype)
    return torch.zeros(len(request.curve_HN), dtype=torch.bool)


def _row(request: AttentionRequest) -> Float[Tensor, "1 H T"]:
    """The bias of the middle query, from the curve."""
    middle = request.queries // 2
    return request.curve_HN[:, middle : middle + request.keys].flip(-1)[None]


def _take_heads(request: AttentionRequest, heads: Tensor) -> AttentionRequest:
    """The request of some heads only."""
    q, k, v, mask = (_select(x, heads) for x in (request.q_BHSK, request.k_BHTK, request.v_BHTK, request.mask_BHST))
    return replace(request, q_BHSK=q, k_BHTK=k, v_BHTK=v, mask_BHST=mask)


def _select(x: Any, heads: Tensor) -> Any:
    """Some heads of a tensor, as a view where they are neighbours; a mask may be the same for all, or None."""
    if x is None or x.shape[1] == 1:
        return x
    first, last = int(heads[0]), int(heads[-1])
    return x[:, first : last + 1] if last - first + 1 == len(heads) else x.index_select(1, heads)
