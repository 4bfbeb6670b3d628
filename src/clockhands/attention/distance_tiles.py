"""Compute attention by tiles of queries, with a bias by distance: nothing of size S x T ever exists.

Keys are in reverse order, so that the distance of query i and key j is a constant plus i + j. So the bias of a tile is
a view of the curve with strides (1, 1), and the gradient of the curve is the sums of the logits' gradient along the
diagonals i + j. The backward pass computes the weights again.
"""

from __future__ import annotations

from typing import Any

import torch

from clockhands.attention.line import Line
from clockhands.attention.request import AttentionRequest
from clockhands.attention.tile_work import LOG2E, Tile, TileWork
from clockhands.shapes import Float, Tensor


def attend_by_tiles(
    request: AttentionRequest, curve_HN: Float[Tensor, "#H N"], line: Line
) -> Float[Tensor, "B H S Kv"]:
    """Compute softmax(scale·q·kᵀ + bias)·v, with the request's sinks in the softmax: [B, H, S, Kv].

    The bias of query s and key t is ``curve[offset(s) - offset(t) + offset(T - 1)]``, where ``offset`` is
    ``line.get_offset``. N is offset(S - 1) + offset(T - 1) + 1.

    The curve has to mask what ``causal`` masks (``make_causal_curve``). Distances at either end of a head's curve are
    skipped if they are -inf, as under causal masks and windows, or if their bias is so low that their weights would be
    rounded to 0 whatever the queries and keys, as in the steep heads of ALiBi.
    """
    q = request.q_BHSK
    curve_HN = curve_HN.to(torch.promote_types(q.dtype, torch.float32)).expand(q.shape[1], -1)
    out: Tensor = _Tiled.apply(
        q, request.k_BHTK, request.v_BHTK, curve_HN, request.mask_BHST, request.sink_H, request.scale, request.dropout,
        line,
    )  # fmt: skip
    return out


def make_causal_curve(length: int, later: int, device: torch.device) -> Float[Tensor, "1 N"]:
    """Make the causal mask as a curve of distances: -inf for the ``later`` keys to the right, 0 for others."""
    curve_N = torch.zeros(length, device=device)
    curve_N[:later] = -torch.inf
    return curve_N[None]


class _Tiled(torch.autograd.Function):
    """Attention by tiles with its gradient.

    The backward pass computes the weights again from their logarithmic sums.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        curve: Tensor,
        mask: Tensor | None,
        sink: Tensor | None,
        scale: float,
        dropout: float,
        line: Line,
    ) -> Tensor:
        seed = int(torch.randint(1 << 62, ()).item()) if dropout else 0
        # Logits in units of ln 2, so that weights are powers of 2; keys and values from right to left.
        q2, kr, vr = (q * (scale * LOG2E)).flatten(0, 1), k.flip(2).flatten(0, 1), v.flip(2).flatten(0, 1)
        work = TileWork(q2, kr, vr, curve, mask, sink, dropout, line, seed)
        out = torch.zeros(*q2.shape[:2], v.shape[-1], dtype=v.dtype, device=v.device)
        logsum = torch.zeros(*q2.shape[:2], 1, dtype=work.wide, device=v.device)
        for index, tile in enumerate(work.make_tiles()):
            weights, total, logsum[tile.query_rows] = work.compute_unnormalised(tile)
            out[tile.query_rows] = work.apply_dropout(weights, index).to(v.dtype) @ work.v[tile.key_rows] / total
        ctx.save_for_backward(q2, kr, vr, curve, mask, sink, out, logsum)
        ctx.rest, ctx.scale = (dropout, line, seed), scale
        return out.unflatten(0, q.shape[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, curve, mask, sink, out, logsum = ctx.saved_tensors
        work, grad = TileWork(q, k, v, curve, mask, sink, *ctx.rest), grads[0].contiguous().flatten(0, 1)
        # The gradient of a softmax is w (dw − Σ w dw), and Σ w dw of a row is the product of its output and gradient.
        row_sums = (grad.to(work.wide) * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k, dtype=work.wide), torch.zeros_like(v, dtype=work.wide)
        diagonals = Diagonals(work) if ctx.needs_input_grad[3] else None
        for index, tile in enumerate(work.make_tiles()):
            weights = work.compute_weights_again(tile, logsum[tile.query_rows])
            _add_product(dv[tile.key_rows], work.apply_dropout(weights, index).to(v.dtype).mT, grad[tile.query_rows])
            dweights = work.multiply("dweights", grad[tile.query_rows], v[tile.key_rows])
            dlogits = work.apply_dropout(dweights, index).sub_(row_sums[tile.query_rows]).mul_(weights)
            if diagonals is not None:
                diagonals.add(tile, dlogits)
            narrow = dlogits.to(q.dtype)
            dq[tile.query_rows] = narrow @ k[tile.key_rows]
            _add_product(dk[tile.key_rows], narrow.mT, q[tile.query_rows])
        gradients = (dq.mul_(ctx.scale), dk.div_(LOG2E).flip(1).to(k.dtype), dv.flip(1).to(v.dtype))
        dqkv = (x.unflatten(0, grads[0].shape[:2]) for x in gradients)
        dsink = work.compute_sink_gradient(logsum, row_sums) if ctx.needs_input_grad[5] else None
        return *dqkv, None if diagonals is None else diagonals.total, None, dsink, None, None, None


class Diagonals:
    """The gradient of the curve: the sums over all queries and keys at one distance.

    The logits of a tile are written as rows of n + rows numbers, padded with zeros, and the same memory is read as rows
    of n + rows - 1 numbers. Each row then begins one number later than the row before, so that the numbers of one
    diagonal are in one column, and a sum over rows is the sum along the diagonals.
    """

    def __init__(self, work: TileWork) -> None:
        self.work, self.line = work, work.line
        longer = self.line.step if self.line.run < work.k.shape[1] else 0
        self.sums = work.curve.new_zeros(len(work.curve), work.curve.shape[1] + longer)

    def add(self, tile: Tile, dlogits: Tensor) -> None:
        """Add the gradient of a tile's logits; the gaps between runs of keys are zeros here."""
        (runs, rows), (groups, keys) = (self.line.count_runs(part.stop - part.start) for part in (tile.rows, tile.keys))
        width = keys if groups == 1 else groups * self.line.step
        heads = len(self.work.curve[tile.heads])
        room = self.work.take_memory("diagonals", torch.Size((len(dlogits) // heads, heads, runs, rows, width + rows)))
        if groups > 1 or keys < width:
            room.zero_()
        room[..., keys if groups == 1 else width :] = 0
        written = room[..., :width].unflatten(-1, (groups, -1))[..., :keys]
        written.copy_(dlogits.view(*room.shape[:4], groups, keys))
        step = width + rows - 1
        sums = room.as_strided((*room.shape[:4], step), (*room.stride()[:3], step, 1)).sum((0, 3))
        start = self.line.get_offset(tile.rows.start) + self.line.get_offset(tile.keys.start)
        for run in range(runs):
            begin = start + run * self.line.step
            self.sums[tile.heads, begin : begin + step] += sums[:, run]

    @property
    def total(self) -> Tensor:
        """The sums so far: [H, N]."""
        return self.sums[:, : self.work.curve.shape[1]]


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to ``total`` in place, without a temporary where the types allow."""
    if total.dtype == a.dtype:
        total.baddbmm_(a, b)
    else:
        total += a @ b
