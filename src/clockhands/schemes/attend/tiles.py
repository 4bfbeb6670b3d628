"""Attention by tiles of queries, with a bias that is a function of the distance: nothing of size S x T ever exists.

With keys laid out from right to left, the distance of row i and key j is a number plus i + j. So the bias of a tile is
a *view* of the curve, and its gradient is the sums along the diagonals. The backward pass computes the weights again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from clockhands.schemes.attend.reference import Visible
from clockhands.shapes import Float, Tensor

ROWS, ELEMENTS = 128, 1 << 18


class Tile(NamedTuple):
    """Rows of queries of some heads of some batch rows, and the keys (counted from the right) that they can see."""

    batch: slice
    heads: slice
    rows: slice
    keys: slice

    @property
    def queries(self) -> tuple[slice, slice, slice]:
        return self.batch, self.heads, self.rows

    @property
    def seen(self) -> tuple[slice, slice, slice]:
        return self.batch, self.heads, self.keys


def tiled(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    curve_HN: Float[Tensor, "#H N"],
    visible_BHST: Visible | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H S Kv"]:
    """softmax(scale·q·kᵀ + bias)·v where the bias of query s and key t is ``curve[s - t + T - 1]``, N = S + T - 1.

    What is -inf at either end of a head's curve is skipped: causal masks and windows cost only what they show. So are
    distances so far below the nearest ones that their weights would be zero in floating point whatever the queries and
    keys: the steep heads of ALiBi cost only what they see.
    """
    curve_HN = curve_HN.to(torch.promote_types(q_BHSK.dtype, torch.float32)).expand(q_BHSK.shape[1], -1)
    out: Tensor = _Tiled.apply(q_BHSK, k_BHTK, v_BHTK, curve_HN.contiguous(), visible_BHST, scale, dropout)
    return out


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        curve: Tensor,
        visible: Tensor | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        seed = int(torch.randint(1 << 62, ()).item()) if dropout else 0
        work = _Work(q.contiguous(), k.flip(2), v.flip(2), curve, visible, scale, dropout, seed)
        out = torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype, device=v.device)
        for number, tile in enumerate(work.tiles()):
            weights = work.dropped(work.weights(tile), number)
            out[tile.queries] = weights.to(v.dtype) @ work.v[tile.seen]
        ctx.save_for_backward(work.q, work.k, work.v, curve, visible, out)
        ctx.rest = (scale, dropout, seed)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, curve, visible, out = ctx.saved_tensors
        work, grad = _Work(q, k, v, curve, visible, *ctx.rest), grads[0].contiguous()
        dq, dcurve = torch.zeros_like(q), torch.zeros_like(curve) if ctx.needs_input_grad[3] else None
        dk, dv = torch.zeros_like(k, dtype=work.wide), torch.zeros_like(v, dtype=work.wide)
        row_sums = (grad.to(work.wide) * out).sum(-1, keepdim=True)
        for number, tile in enumerate(work.tiles()):
            weights = work.weights(tile)
            _add_product(dv[tile.seen], work.dropped(weights, number).to(v.dtype).mT, grad[tile.queries])
            dweights = work.dropped((grad[tile.queries] @ v[tile.seen].mT).to(work.wide), number)
            dweights.sub_(row_sums[tile.queries])
            if dcurve is None:
                dlogits = dweights.mul_(weights)
            else:
                dlogits = work.skewed(weights, dweights)
                _add_diagonals(dcurve[tile.heads, tile.rows.start + tile.keys.start :], dlogits)
            narrow = dlogits.to(q.dtype)
            dq[tile.queries] = (narrow @ k[tile.seen]) * ctx.rest[0]
            _add_product(dk[tile.seen], narrow.mT, q[tile.queries] * ctx.rest[0])
        return dq, dk.flip(2).to(k.dtype), dv.flip(2).to(v.dtype), dcurve, None, None, None


class _Work:
    """One attention's tensors, keys and values from right to left, and what a tile needs of them."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        curve: Tensor,
        visible: Tensor | None,
        scale: float,
        dropout: float,
        seed: int,
    ) -> None:
        self.q, self.k, self.v, self.curve = q, k, v, curve
        self.hidden = None if visible is None else ~visible.flip(-1)
        self.scale, self.dropout, self.seed = scale, dropout, seed
        self.wide = torch.promote_types(q.dtype, torch.float32)
        self.spans = _spans(curve, None if visible is not None else self._reach(), q.shape[2], k.shape[2])
        gaps = any(bool((curve[h, low : high + 1] == -torch.inf).any()) for h, (low, high) in enumerate(self.spans))
        short = any(low >= k.shape[2] or high < q.shape[2] - 1 for low, high in self.spans)
        self.may_be_blind = visible is not None or gaps or short
        self.buffer: Tensor | None = None

    def _reach(self) -> Tensor:
        """How far apart two logits of a head can be before the smaller one's weight is zero: [H]."""
        longest = [x.to(self.wide).norm(dim=-1).amax((0, 2)) for x in (self.q, self.k)]
        vanishing = -math.log(torch.finfo(self.wide).smallest_normal * torch.finfo(self.wide).eps)
        return 2 * abs(self.scale) * longest[0] * longest[1] + vanishing + 1

    def tiles(self) -> Iterator[Tile]:
        """Tiles of about ``ELEMENTS`` weights: a few heads of one batch row, or all heads of a few."""
        (batch, heads, queries), keys = self.q.shape[:3], self.k.shape[2]
        rows = min(queries, ROWS)
        some_heads = max(1, min(heads, ELEMENTS // (rows * keys)))
        some_batch = max(1, ELEMENTS // (rows * keys * heads)) if some_heads == heads else 1
        for b in range(0, batch, some_batch):
            for h in range(0, heads, some_heads):
                heads_here = self.spans[h : h + some_heads]
                low, high = min(span[0] for span in heads_here), max(span[1] for span in heads_here)
                for start in range(0, queries, rows):
                    stop = min(start + rows, queries)
                    seen = slice(max(low - stop + 1, 0), min(high - start + 1, keys))
                    if seen.start < seen.stop:
                        part = slice(b, b + some_batch), slice(h, min(h + some_heads, heads))
                        yield Tile(*part, slice(start, stop), seen)

    def weights(self, tile: Tile) -> Tensor:
        """Softmax of the logits of a tile; a row that sees nothing has none."""
        logits = ((self.q[tile.queries] * self.scale) @ self.k[tile.seen].mT).to(self.wide)
        logits += self.bias(tile)
        if self.hidden is not None:
            sides = zip((tile.batch, tile.heads, tile.rows), self.hidden.shape, strict=False)
            part = tuple(side if size > 1 else slice(None) for side, size in sides)
            logits.masked_fill_(self.hidden[(*part, tile.keys)], -torch.inf)
        weights = torch.softmax(logits, dim=-1)
        return weights.nan_to_num_(0.0) if self.may_be_blind else weights

    def bias(self, tile: Tile) -> Tensor:
        """The curve over the pairs of a tile, as a view."""
        curve = self.curve[tile.heads]
        shape = (curve.shape[0], tile.rows.stop - tile.rows.start, tile.keys.stop - tile.keys.start)
        start = curve.storage_offset() + tile.rows.start + tile.keys.start
        return curve.as_strided(shape, (curve.stride(0), 1, 1), start)

    def dropped(self, weights: Tensor, number: int) -> Tensor:
        """Some weights zero and the rest larger, the same ones whenever a tile is computed."""
        if not self.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed + number)
        kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
        return weights * kept.div_(1 - self.dropout)

    def skewed(self, weights: Tensor, dweights: Tensor) -> Tensor:
        """The gradient of the logits, in rows with room for ``_add_diagonals``."""
        *front, rows, keys = weights.shape
        shape = (*front, rows, keys + rows)
        need = torch.Size(shape).numel()
        if self.buffer is None or self.buffer.numel() < need:
            self.buffer = weights.new_empty(need)
        room = self.buffer[:need].view(shape)
        room[..., keys:] = 0
        return torch.mul(dweights, weights, out=room[..., :keys])


def _spans(curve_HN: Tensor, reach_H: Tensor | None, queries: int, keys: int) -> list[tuple[int, int]]:
    """The first and last places of each head's curve that can have weight: not -inf, and not more than ``reach`` below
    the best of the distances that every query has (there are some where keys are no fewer than queries)."""
    counts_HN = curve_HN > -torch.inf
    if reach_H is not None and queries <= keys:
        best_H = curve_HN[:, queries - 1 : keys].amax(-1)
        counts_HN = counts_HN & (curve_HN >= (best_H - reach_H)[:, None])
    first_H = counts_HN.int().argmax(-1)
    last_H = counts_HN.shape[-1] - 1 - counts_HN.flip(-1).int().argmax(-1)
    pairs = zip(first_H.tolist(), last_H.tolist(), counts_HN.any(-1).tolist(), strict=True)
    return [(first, last) if some else (0, -1) for first, last, some in pairs]


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, without a temporary where the types allow."""
    if total.dtype == a.dtype and total.shape[0] == 1:
        total[0].baddbmm_(a[0], b[0])
    else:
        total += a @ b


def _add_diagonals(total_HN: Tensor, dlogits_BHST: Tensor) -> None:
    """Add the sums over all pairs of one distance: in rows read one element shorter, every diagonal is a column."""
    batch, heads, rows, keys = dlogits_BHST.shape
    step = keys + rows - 1
    shifted = dlogits_BHST.as_strided((batch, heads, rows, step), (*dlogits_BHST.stride()[:2], step, 1))
    total_HN[:, :step] += shifted.sum((0, 2))
