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
LOG2E = 1 / math.log(2)


class Line(NamedTuple):
    """Where tokens stand: in runs of neighbours, which begin ``step`` apart. A text is one run, a grid one for each of
    its rows."""

    run: int
    step: int

    def place(self, token: int) -> int:
        """How far the token stands from the first."""
        return token // self.run * self.step + token % self.run

    def parts(self, tokens: int) -> tuple[int, int]:
        """Runs, and tokens in each."""
        return (1, tokens) if tokens < self.run else (tokens // self.run, self.run)


class Tile(NamedTuple):
    """Rows of queries of some heads, and the keys (counted from the right) that they can see. ``pairs`` counts heads on
    through the batch: either some of one batch row, or all of some."""

    pairs: slice
    heads: slice
    rows: slice
    keys: slice

    @property
    def queries(self) -> tuple[slice, slice]:
        return self.pairs, self.rows

    @property
    def seen(self) -> tuple[slice, slice]:
        return self.pairs, self.keys


def tiled(
    q_BHSK: Float[Tensor, "B H S K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    curve_HN: Float[Tensor, "#H N"],
    visible_BHST: Visible | None,
    scale: float,
    dropout: float,
    line: Line | None = None,
) -> Float[Tensor, "B H S Kv"]:
    """softmax(scale·q·kᵀ + bias)·v, the bias of query s and key t being ``curve[place(s) - place(t) + place(T - 1)]``.

    N is place(S - 1) + place(T - 1) + 1; ``line`` None: one run, place(s) = s.

    What is -inf at either end of a head's curve is skipped: causal masks and windows cost only what they show. So are
    distances so far below the nearest ones that their weights would be lost in rounding whatever the queries and keys:
    the steep heads of ALiBi cost only what they see.
    """
    curve_HN = curve_HN.to(torch.promote_types(q_BHSK.dtype, torch.float32)).expand(q_BHSK.shape[1], -1)
    line = line or Line(max(q_BHSK.shape[2], k_BHTK.shape[2]), 1)
    out: Tensor = _Tiled.apply(q_BHSK, k_BHTK, v_BHTK, curve_HN, visible_BHST, scale, dropout, line)
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
        line: Line,
    ) -> Tensor:
        seed = int(torch.randint(1 << 62, ()).item()) if dropout else 0
        base2, kr, vr = (x.flatten(0, 1) for x in (q * (scale * LOG2E), k.flip(2), v.flip(2)))
        work = Work(base2, kr, vr, curve, visible, dropout, line, seed)
        out = torch.zeros(*base2.shape[:2], v.shape[-1], dtype=v.dtype, device=v.device)
        logsum = torch.zeros(*base2.shape[:2], 1, dtype=work.wide, device=v.device)
        for number, tile in enumerate(work.tiles()):
            weights, total, logsum[tile.queries] = work.unnormed(tile)
            out[tile.queries] = work.dropped(weights, number).to(v.dtype) @ work.v[tile.seen] / total
        ctx.save_for_backward(base2, kr, vr, curve, visible, out, logsum)
        ctx.rest, ctx.scale = (dropout, line, seed), scale
        return out.unflatten(0, q.shape[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, curve, visible, out, logsum = ctx.saved_tensors
        work, grad = Work(q, k, v, curve, visible, *ctx.rest), grads[0].contiguous().flatten(0, 1)
        row_sums = (grad.to(work.wide) * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k, dtype=work.wide), torch.zeros_like(v, dtype=work.wide)
        diagonals = Diagonals(work) if ctx.needs_input_grad[3] else None
        for number, tile in enumerate(work.tiles()):
            weights = work.weights(tile, logsum[tile.queries])
            _add_product(dv[tile.seen], work.dropped(weights, number).to(v.dtype).mT, grad[tile.queries])
            dweights = work.product("dweights", grad[tile.queries], v[tile.seen])
            dlogits = work.dropped(dweights, number).sub_(row_sums[tile.queries]).mul_(weights)
            if diagonals is not None:
                diagonals.add(tile, dlogits)
            narrow = dlogits.to(q.dtype)
            dq[tile.queries] = narrow @ k[tile.seen]
            _add_product(dk[tile.seen], narrow.mT, q[tile.queries])
        found = (dq.mul_(ctx.scale), dk.div_(LOG2E).flip(1).to(k.dtype), dv.flip(1).to(v.dtype))
        dqkv = (x.unflatten(0, grads[0].shape[:2]) for x in found)
        return *dqkv, None if diagonals is None else diagonals.total, None, None, None, None


class Work:
    """One attention's tensors, heads counted on through the batch, keys and values from right to left; and what a tile
    needs of them. A tile's weights stand in the same memory as those of the tile before."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        curve: Tensor,
        visible: Tensor | None,
        dropout: float,
        line: Line,
        seed: int,
    ) -> None:
        self.q, self.k, self.v, self.curve = q, k, v, (curve * LOG2E).contiguous()
        self.hidden = None if visible is None else ~visible.flip(-1)
        self.dropout, self.line, self.seed = dropout, line, seed
        self.wide = torch.promote_types(q.dtype, torch.float32)
        self.spans = _spans(self.curve, None if visible is not None else self._reach(), line.place(q.shape[1] - 1))
        self.lowest = 0.7 * math.log2(torch.finfo(self.wide).smallest_normal)
        self.memory: dict[str, Tensor] = {}

    def _reach(self) -> Tensor:
        """How far apart two logits of a head can be before the smaller one's weight is lost in rounding: [H]."""
        longest_q, longest_k = (
            x.to(self.wide).norm(dim=-1).view(-1, len(self.curve), x.shape[1]).amax((0, 2)) for x in (self.q, self.k)
        )
        return 2 * longest_q * longest_k - 2 * math.log2(torch.finfo(self.wide).eps)

    def tiles(self) -> Iterator[Tile]:
        """Tiles of about ``ELEMENTS`` weights. Their queries are of one run, or of a few whole ones."""
        queries, run = self.q.shape[1], self.line.run
        rows = min(queries, ROWS) if run >= queries else max(1, ROWS // run) * run
        for pairs, heads in self._heads(max(1, ELEMENTS // (rows * self.k.shape[1]))):
            low, high = min(span[0] for span in self.spans[heads]), max(span[1] for span in self.spans[heads])
            for start in range(0, queries, rows):
                stop = min(start + rows, queries)
                seen = self._seen(low - self.line.place(stop - 1), high - self.line.place(start))
                if seen.start < seen.stop:
                    yield Tile(pairs, heads, slice(start, stop), seen)

    def _heads(self, some: int) -> Iterator[tuple[slice, slice]]:
        """So many heads at a time, in ``pairs`` and as ``heads``: of one batch row, or all of a few rows."""
        pairs, heads = self.q.shape[0], len(self.curve)
        if some >= heads:
            step = some // heads * heads
            yield from ((slice(at, min(at + step, pairs)), slice(0, heads)) for at in range(0, pairs, step))
            return
        for row in range(0, pairs, heads):
            for at in range(0, heads, some):
                end = min(at + some, heads)
                yield slice(row + at, row + end), slice(at, end)

    def _seen(self, low: int, high: int) -> slice:
        """The keys that stand between two places (counted from the right), and the rest of their runs in a grid."""
        keys, (run, step) = self.k.shape[1], self.line
        if run >= keys:
            return slice(max(low, 0), min(high + 1, keys))
        return slice(max(-(-(low - run + 1) // step), 0) * run, min((high // step + 1) * run, keys))

    def unnormed(self, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """The powers of a tile's logits less the largest of the row; their sum, and the logarithm of the sum of all
        without that. A row that sees nothing has zeros, and 1 for their sum."""
        logits = self.logits(tile)
        largest = logits.amax(-1, keepdim=True).clamp_(min=torch.finfo(self.wide).min)
        weights = self._exp2(logits.sub_(largest))
        total = weights.sum(-1, keepdim=True)
        total.masked_fill_(total == 0, 1.0)
        return weights, total, largest + total.log2()

    def weights(self, tile: Tile, logsum: Tensor) -> Tensor:
        """The weights of a tile, in the backward pass."""
        return self._exp2(self.logits(tile).sub_(logsum))

    def _exp2(self, logits: Tensor) -> Tensor:
        """2^logit in place, and 0 for what is below 2^-88 (of the largest of the row): among it are numbers below the
        normal ones, each of which costs an Intel core a hundred others in the products that follow. exp is slow there
        and at -inf, exp2 is not."""
        return torch.threshold_(logits, self.lowest, -torch.inf).exp2_()

    def logits(self, tile: Tile) -> Tensor:
        """Products and bias in units of ln 2, -inf where hidden."""
        logits = self.product("logits", self.q[tile.queries], self.k[tile.seen])
        bias = self.bias(tile)
        logits.view(-1, *bias.shape).add_(bias)
        if self.hidden is not None:
            whole = logits.view(-1, len(self.curve[tile.heads]), *logits.shape[1:])
            first = tile.pairs.start // len(self.curve)
            part = (slice(first, first + len(whole)), tile.heads, tile.rows)
            seen = (side if size > 1 else slice(None) for side, size in zip(part, self.hidden.shape, strict=False))
            whole.masked_fill_(self.hidden[(*seen, tile.keys)], -torch.inf)
        return logits

    def product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """a @ b.mT in the wide type, in memory that is kept under this name."""
        shape = torch.Size((*a.shape[:2], b.shape[1]))
        if a.dtype != self.wide:
            return self.room(name, shape).copy_(torch.bmm(a, b.mT))
        return torch.bmm(a, b.mT, out=self.room(name, shape))

    def room(self, name: str, shape: torch.Size) -> Tensor:
        """Memory of this shape; new memory for every tile would be mapped page by page again."""
        kept = self.memory.get(name)
        if kept is None or kept.numel() < shape.numel():
            kept = self.memory[name] = self.q.new_empty(shape.numel(), dtype=self.wide)
        return kept[: shape.numel()].view(shape)

    def bias(self, tile: Tile) -> Tensor:
        """The curve over the pairs of a tile, as a view: [heads, runs of queries, queries, runs of keys, keys]."""
        curve, step = self.curve[tile.heads], self.line.step
        rows, keys = (self.line.parts(part.stop - part.start) for part in (tile.rows, tile.keys))
        start = curve.storage_offset() + self.line.place(tile.rows.start) + self.line.place(tile.keys.start)
        return curve.as_strided((len(curve), *rows, *keys), (curve.stride(0), step, 1, step, 1), start)

    def dropped(self, weights: Tensor, number: int) -> Tensor:
        """Some weights zero and the rest larger, the same ones whenever a tile is computed."""
        if not self.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed + number)
        kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
        return weights * kept.div_(1 - self.dropout)


class Diagonals:
    """The gradient of the curve: the sums over all pairs of one distance. In rows that are read one element shorter
    than they were written, every diagonal is a column."""

    def __init__(self, work: Work) -> None:
        self.work, self.line = work, work.line
        longer = self.line.step if self.line.run < work.k.shape[1] else 0
        self.sums = work.curve.new_zeros(len(work.curve), work.curve.shape[1] + longer)

    def add(self, tile: Tile, dlogits: Tensor) -> None:
        """Add what a tile says; the gaps between runs of keys are zeros here."""
        (runs, rows), (groups, keys) = (self.line.parts(part.stop - part.start) for part in (tile.rows, tile.keys))
        width = keys if groups == 1 else groups * self.line.step
        heads = len(self.work.curve[tile.heads])
        room = self.work.room("diagonals", torch.Size((len(dlogits) // heads, heads, runs, rows, width + rows)))
        if groups > 1 or keys < width:
            room.zero_()
        room[..., keys if groups == 1 else width :] = 0
        written = room[..., :width].unflatten(-1, (groups, -1))[..., :keys]
        written.copy_(dlogits.view(*room.shape[:4], groups, keys))
        step = width + rows - 1
        sums = room.as_strided((*room.shape[:4], step), (*room.stride()[:3], step, 1)).sum((0, 3))
        start = self.line.place(tile.rows.start) + self.line.place(tile.keys.start)
        for run in range(runs):
            begin = start + run * self.line.step
            self.sums[tile.heads, begin : begin + step] += sums[:, run]

    @property
    def total(self) -> Tensor:
        """[H, N]."""
        return self.sums[:, : self.work.curve.shape[1]]


def _spans(curve_HN: Tensor, reach_H: Tensor | None, furthest: int) -> list[tuple[int, int]]:
    """The first and last places of each head's curve that can have weight: not -inf, and not more than ``reach`` below
    the best of the distances that every query has. Those are between the last query's own distance to the last key,
    ``furthest``, and as far from the other end; there are some where keys are no fewer than queries."""
    counts_HN = curve_HN > -torch.inf
    if reach_H is not None and curve_HN.shape[1] > 2 * furthest:
        best_H = curve_HN[:, furthest : curve_HN.shape[1] - furthest].amax(-1)
        counts_HN = counts_HN & (curve_HN >= (best_H - reach_H)[:, None])
    first_H = counts_HN.int().argmax(-1)
    last_H = counts_HN.shape[-1] - 1 - counts_HN.flip(-1).int().argmax(-1)
    pairs = zip(first_H.tolist(), last_H.tolist(), counts_HN.any(-1).tolist(), strict=True)
    return [(first, last) if some else (0, -1) for first, last, some in pairs]


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, without a temporary where the types allow."""
    if total.dtype == a.dtype:
        total.baddbmm_(a, b)
    else:
        total += a @ b
