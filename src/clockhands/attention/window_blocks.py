"""Attention inside a window on a CPU: blocks of queries, each with the keys of its window alone, in one fused call."""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from clockhands.attention import by_distance
from clockhands.attention.fused_kernel import call_fused_kernel, fuses_sinks, spread_sinks
from clockhands.attention.request import AttentionRequest, Runs, refuse_second_derivative
from clockhands.schemes import Window
from clockhands.shapes import Float, Tensor

ROWS = 64
"""The queries of a block; ``WIDER`` times as many for a gradient in a wide window, where many blocks share a key."""
WIDER = 4


def serves(request: AttentionRequest) -> bool:
    """Return whether a window is all that there is, and a block of queries fits between the ends of the text."""
    scheme = request.scheme
    return (
        isinstance(scheme, Window)
        and request.hooks == {"bias"}
        and request.mask_BHST is None
        and not request.dropout
        and request.q_BHSK.device.type == "cpu"
        and request.num_keys > by_distance.SHORT
        and request.num_keys >= request.num_queries
        and _count_blocks(request) > 0
        # In 16 bits matrix products are faster backwards, and tiles are where the processor has no fast ones.
        and (not request.low_precision or (by_distance.has_fast_low_precision() and not _needs_gradient(request)))
        and (request.sink_H is None or fuses_sinks(request))
        and _is_text(request)
    )


def compute(request: AttentionRequest) -> Float[Tensor, "B H S Kv"]:
    """Compute the attended values: [B, H, S, Kv].

    The queries at either end, whose windows or blocks are cut off, are computed by themselves.
    """
    first, last = _find_first(request), _find_first(request) + _count_blocks(request) * _choose_rows(request)
    head, tail = _compute_end(request, 0, first), _compute_end(request, last, request.num_queries)
    parts = (head, _compute_middle(request, first, last), tail)
    return torch.cat([part for part in parts if part.shape[2]], dim=2)


def _get_reach(request: AttentionRequest) -> tuple[int, int]:
    """Return how many keys to the left and to the right of its own a query may attend to."""
    scheme = cast(Window, request.scheme)
    return scheme.left, 0 if request.causal else scheme.right


def _find_first(request: AttentionRequest) -> int:
    """Return the first query whose window does not begin before the first key."""
    return min(request.num_queries, max(0, _get_reach(request)[0] - (request.num_keys - request.num_queries)))


def _count_blocks(request: AttentionRequest) -> int:
    """Return how many whole blocks have all keys of their windows."""
    return max(0, request.num_queries - _get_reach(request)[1] - _find_first(request)) // _choose_rows(request)


def _choose_rows(request: AttentionRequest) -> int:
    """Return the number of queries of a block."""
    return ROWS * WIDER if _needs_gradient(request) and sum(_get_reach(request)) > ROWS * WIDER else ROWS


def _needs_gradient(request: AttentionRequest) -> bool:
    tensors = (request.q_BHSK, request.k_BHTK, request.v_BHTK)
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _is_text(request: AttentionRequest) -> bool:
    """Return whether tokens are neighbours on a line, and the queries the last of them."""
    q_BS, k_BT = request.qpos, request.kpos
    if q_BS.is_floating_point() or k_BT.is_floating_point() or request.line is None:
        return False
    queries, keys = request.num_queries, request.num_keys
    return request.line == Runs(max(queries, keys), 1) and request.first_distance == keys - queries


def _compute_middle(request: AttentionRequest, first: int, last: int) -> Float[Tensor, "B H s Kv"]:
    """Compute the whole blocks, of the queries from ``first`` to ``last``; shared keys are read where they are."""
    rows, (left, right), batch_and_heads = _choose_rows(request), _get_reach(request), request.q_BHSK.shape[:2]
    start = request.num_keys - request.num_queries + first - left
    q = request.q_BHSK[:, :, first:last].unflatten(2, (-1, rows)).flatten(0, 1)
    size = (q.shape[1], rows, left + rows + right)
    k = _Overlap.apply(request.k_BHTK.flatten(0, 1), start, size)
    v = _Overlap.apply(request.v_BHTK.flatten(0, 1), start, size)
    mask = _make_mask(request, range(left, left + rows), range(size[2]))
    # The blocks stand where heads did, and the heads are among the rows of the batch.
    sink = None if request.sink_H is None else request.sink_H.repeat(batch_and_heads[0])[:, None, None]
    out = call_fused_kernel(q, k, v, sink_BHS=sink, attn_mask=mask, scale=request.scale)
    return out.unflatten(0, batch_and_heads).flatten(2, 3)


def _compute_end(request: AttentionRequest, start: int, stop: int) -> Float[Tensor, "B H s Kv"]:
    """Compute the queries from ``start`` to ``stop``, with the keys that any of them may attend to."""
    left, right = _get_reach(request)
    offset = request.num_keys - request.num_queries
    keys = range(max(0, offset + start - left), min(request.num_keys, offset + stop + right))
    q = request.q_BHSK[:, :, start:stop]
    k, v = request.k_BHTK[:, :, keys.start : keys.stop], request.v_BHTK[:, :, keys.start : keys.stop]
    if start == stop:
        return v[:, :, :0]
    options: dict[str, Any] = {"sink_BHS": spread_sinks(request), "scale": request.scale}
    if len(keys) == stop - start <= left + 1 and request.causal and request.scale > 0:
        return call_fused_kernel(q, k, v, is_causal=True, **options)
    mask = _make_mask(request, range(offset + start, offset + stop), keys)
    return call_fused_kernel(q, k, v, attn_mask=mask, **options)


def _make_mask(request: AttentionRequest, queries: range, keys: range) -> Float[Tensor, "s t"]:
    """Return 0 where a query may attend to a key and -∞ elsewhere; both are places on one line: [s, t]."""
    left, right = _get_reach(request)
    distance = torch.arange(queries.start, queries.stop)[:, None] - torch.arange(keys.start, keys.stop)
    dtype = torch.promote_types(request.q_BHSK.dtype, torch.float32)
    return torch.zeros(distance.shape, dtype=dtype).masked_fill((distance > left) | (distance < -right), -math.inf)


class _Overlap(torch.autograd.Function):
    """The rows of all blocks as views of one memory; the gradients of what several blocks read are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, start: int, size: tuple[int, int, int]) -> Tensor:
        """Return [N, blocks, width, K] of x [N, T, K]: block b has the rows of x from start + b·rows on.

        ``size``: blocks, rows and width.
        """
        ctx.shape, ctx.start, ctx.rows = x.shape, start, size[1]
        x = x if x.stride(2) == 1 else x.contiguous()
        strides = (x.stride(0), size[1] * x.stride(1), x.stride(1), 1)
        return x.as_strided((len(x), size[0], size[2], x.shape[2]), strides, x.storage_offset() + start * x.stride(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
        (gradient,), (size, tokens, channels) = grads, ctx.shape
        blocks, width = gradient.shape[1:3]
        total = gradient.new_zeros(ctx.shape)
        # So many rows from one place on belong to different tokens in all blocks, and can be added at once.
        for row in range(0, width, ctx.rows):
            rows = min(ctx.rows, width - row)
            strides = (tokens * channels, ctx.rows * channels, channels, 1)
            place = total.as_strided((size, blocks, rows, channels), strides, (ctx.start + row) * channels)
            place += gradient[:, :, row : row + rows]
        return total, None, None
