"""Compute attention by tiles of queries, with a bias by distance: nothing of size S x T ever exists.

Keys are in reverse order, so that the distance of query i and key j is a constant plus i + j. So the bias of a tile is
a view of the curve with strides (1, 1), and the gradient of the curve is the sums of the logits' gradient along the
diagonals i + j. The backward pass computes the weights again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch

from clockhands.attention.request import AttentionRequest, Runs, refuse_second_derivative
from clockhands.shapes import Float, Tensor

ROWS, ELEMENTS = 128, 1 << 18
"""The most queries of a tile, and about how many weights it has."""
LOG2E = 1 / math.log(2)
"""log2(e): e to the power of a logit is 2 to the power of this times the logit."""


def attend_by_tiles(
    request: AttentionRequest, curve_HN: Float[Tensor, "#H N"], line: Runs
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


class _Tile(NamedTuple):
    """Rows of queries of some heads, and the keys (counted from the right) that they may attend to.

    The same heads are slices of two axes: ``heads`` of [H], ``batch_heads`` of [B·H], where they are either some heads
    of one batch row or all heads of some rows.
    """

    batch_heads: slice
    heads: slice
    rows: slice
    keys: slice

    @property
    def query_rows(self) -> tuple[slice, slice]:
        """The slices of the tile's queries in [B·H, S, ...]."""
        return self.batch_heads, self.rows

    @property
    def key_rows(self) -> tuple[slice, slice]:
        """The slices of the tile's keys in [B·H, T, ...]."""
        return self.batch_heads, self.keys


class TileWork:
    """The tensors of one attention, [B·H, S or T, K], with keys and values in reverse order, and the work of a tile.

    The weights of a tile overwrite those of the tile before, in the same memory.
    """

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        curve: Tensor,
        mask: Tensor | None,
        sink: Tensor | None,
        dropout: float,
        line: Runs,
        seed: int,
    ) -> None:
        self.q, self.k, self.v, self.curve = q, k, v, (curve * LOG2E).contiguous()
        # The logits of sinks, [B·H, 1, 1].
        self.sink = None if sink is None else (sink * LOG2E).repeat(len(q) // len(curve))[:, None, None]
        self.masked = None if mask is None else ~mask.flip(-1)
        self.dropout, self.line, self.seed = dropout, line, seed
        # The type of logits, weights and sums; the first and last index of each head's curve that a tile needs; and the
        # logit, in units of ln 2, below which a weight is set to 0 (``compute_powers``).
        self.wide = torch.promote_types(q.dtype, torch.float32)
        self.spans = _find_spans(
            self.curve, None if mask is not None else self._compute_reach(), line.get_offset(q.shape[1] - 1)
        )
        self.lowest = 0.7 * math.log2(torch.finfo(self.wide).smallest_normal)
        self.memory: dict[str, Tensor] = {}

    def _compute_reach(self) -> Tensor:
        """Return how far apart two logits of a head can be before the smaller one's weight is lost in rounding: [H]."""
        longest_q = self.q.to(self.wide).norm(dim=-1).view(-1, len(self.curve), self.q.shape[1]).amax((0, 2))
        longest_k = self.k.to(self.wide).norm(dim=-1).view(-1, len(self.curve), self.k.shape[1]).amax((0, 2))
        # |q·k| <= |q||k| (Cauchy and Schwarz), so that products differ by 2|q||k| at most; below ε² a weight is lost.
        return 2 * longest_q * longest_k - 2 * math.log2(torch.finfo(self.wide).eps)

    def make_tiles(self) -> Iterator[_Tile]:
        """Yield tiles of about ``ELEMENTS`` weights. Their queries are of one run, or of a few whole ones."""
        queries, run = self.q.shape[1], self.line.run
        rows = min(queries, ROWS) if run >= queries else max(1, ROWS // run) * run
        for batch_heads, heads in self._split_heads(max(1, ELEMENTS // (rows * self.k.shape[1]))):
            low, high = min(span[0] for span in self.spans[heads]), max(span[1] for span in self.spans[heads])
            for start in range(0, queries, rows):
                stop = min(start + rows, queries)
                keys = self._find_keys(low - self.line.get_offset(stop - 1), high - self.line.get_offset(start))
                if keys.start < keys.stop:
                    yield _Tile(batch_heads, heads, slice(start, stop), keys)

    def _split_heads(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Yield ``count`` heads at a time, as ``batch_heads`` and ``heads``: of one batch row, or all of a few rows."""
        batch_heads, heads = self.q.shape[0], len(self.curve)
        if count >= heads:
            step = count // heads * heads
            yield from ((slice(at, min(at + step, batch_heads)), slice(0, heads)) for at in range(0, batch_heads, step))
            return
        for row in range(0, batch_heads, heads):
            for at in range(0, heads, count):
                end = min(at + count, heads)
                yield slice(row + at, row + end), slice(at, end)

    def _find_keys(self, low: int, high: int) -> slice:
        """Return the keys between two places (counted from the right), with the rest of their runs in a grid."""
        keys, (run, step) = self.k.shape[1], self.line
        if run >= keys:
            return slice(max(low, 0), min(high + 1, keys))
        return slice(max(-(-(low - run + 1) // step), 0) * run, min((high // step + 1) * run, keys))

    def compute_unnormalised(self, tile: _Tile) -> tuple[Tensor, Tensor, Tensor]:
        """Compute a tile's weights before they are divided by their sum, that sum, and its logarithm.

        The largest logit of a row is subtracted before its powers are taken, and counts in the logarithm again. A row
        that may attend to no key has zeros, and 1 for their sum. A sink counts in the sum as a key does.
        """
        logits = self.compute_logits(tile)
        largest = logits.amax(-1, keepdim=True).clamp_(min=torch.finfo(self.wide).min)
        sink = None if self.sink is None else self.sink[tile.batch_heads]
        largest = largest if sink is None else torch.maximum(largest, sink)
        weights = self.compute_powers(logits.sub_(largest))
        total = weights.sum(-1, keepdim=True)
        total = total if sink is None else total.add_((sink - largest).exp2_())
        total.masked_fill_(total == 0, 1.0)
        return weights, total, largest + total.log2()

    def compute_sink_gradient(self, logsum: Tensor, row_sums: Tensor) -> Tensor:
        """Compute the gradient of the logits of sinks, [H], of the logarithmic sums and Σ w dw of all rows.

        The gradient of a logit is w (dw - Σ w dw), and dw is 0, since the value of a sink is.
        """
        weights = (cast(Tensor, self.sink) - logsum).exp2_()
        return -(weights * row_sums).view(-1, len(self.curve), weights.shape[1]).sum((0, 2))

    def compute_powers(self, logits: Tensor) -> Tensor:
        """Compute 2^logit in place, and 0 for logits below ``lowest`` (the largest of a row is 0).

        In float32 that is 2^-88. Smaller weights and their products could be subnormal numbers, with which an Intel
        core computes a hundred times more slowly. exp is slow for such logits and for -inf too, exp2 is not.
        """
        return torch.threshold_(logits, self.lowest, -torch.inf).exp2_()

    def compute_logits(self, tile: _Tile) -> Tensor:
        """Compute products and bias in units of ln 2, -inf where masked."""
        logits = self.multiply("logits", self.q[tile.query_rows], self.k[tile.key_rows])
        bias = self.view_bias(tile)
        logits.view(-1, *bias.shape).add_(bias)
        if self.masked is not None:
            whole = logits.view(-1, len(self.curve[tile.heads]), *logits.shape[1:])
            first = tile.batch_heads.start // len(self.curve)
            part = (slice(first, first + len(whole)), tile.heads, tile.rows)
            sizes = (side if size > 1 else slice(None) for side, size in zip(part, self.masked.shape, strict=False))
            whole.masked_fill_(self.masked[(*sizes, tile.keys)], -torch.inf)
        return logits

    def multiply(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Compute a @ b.mT in the wide type, in memory that is kept under this name."""
        shape = torch.Size((*a.shape[:2], b.shape[1]))
        if a.dtype != self.wide:
            return self.take_memory(name, shape).copy_(torch.bmm(a, b.mT))
        return torch.bmm(a, b.mT, out=self.take_memory(name, shape))

    def take_memory(self, name: str, shape: torch.Size) -> Tensor:
        """Return memory of this shape; new memory for every tile would be mapped page by page again."""
        memory = self.memory.get(name)
        if memory is None or memory.numel() < shape.numel():
            memory = self.memory[name] = self.q.new_empty(shape.numel(), dtype=self.wide)
        return memory[: shape.numel()].view(shape)

    def view_bias(self, tile: _Tile) -> Tensor:
        """Return the curve over the pairs of a tile, as a view.

        Its axes are [heads, runs of queries, queries, runs of keys, keys].
        """
        curve, step = self.curve[tile.heads], self.line.step
        rows = self.line.count_runs(tile.rows.stop - tile.rows.start)
        keys = self.line.count_runs(tile.keys.stop - tile.keys.start)
        start = curve.storage_offset() + self.line.get_offset(tile.rows.start) + self.line.get_offset(tile.keys.start)
        return curve.as_strided((len(curve), *rows, *keys), (curve.stride(0), step, 1, step, 1), start)

    def apply_dropout(self, weights: Tensor, number: int) -> Tensor:
        """Apply dropout to weights; the same ones are dropped whenever the tile of this number is computed."""
        if not self.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed + number)
        kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
        # Kept weights grow by 1/(1 - p), as those of torch do.
        return weights * kept.div_(1 - self.dropout)


def _find_spans(curve_HN: Tensor, reach_H: Tensor | None, furthest: int) -> list[tuple[int, int]]:
    """Return the first and the last index of each head's curve at which a key can get weight; (0, -1) if none can.

    A key gets none where the bias is -inf, nor where it is more than ``reach_H`` below that of another key of the same
    query. The curve does not say which keys a query has, so only those indices are compared with that every query has:
    query s has the indices offset(s) to offset(s) + offset(T - 1), and all queries those from ``furthest``, which is
    offset(S - 1), to offset(T - 1). Where there are fewer keys than queries, there is none.
    """
    counts_HN = curve_HN > -torch.inf
    if reach_H is not None and curve_HN.shape[1] > 2 * furthest:
        best_H = curve_HN[:, furthest : curve_HN.shape[1] - furthest].amax(-1)
        counts_HN = counts_HN & (curve_HN >= (best_H - reach_H)[:, None])
    first_H = counts_HN.int().argmax(-1)
    last_H = counts_HN.shape[-1] - 1 - counts_HN.flip(-1).int().argmax(-1)
    pairs = zip(first_H.tolist(), last_H.tolist(), counts_HN.any(-1).tolist(), strict=True)
    return [(first, last) if some else (0, -1) for first, last, some in pairs]


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
        line: Runs,
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
        refuse_second_derivative()
        q, k, v, curve, mask, sink, out, logsum = ctx.saved_tensors
        work, grad = TileWork(q, k, v, curve, mask, sink, *ctx.rest), grads[0].contiguous().flatten(0, 1)
        # The gradient of a softmax is w (dw - Σ w dw), and Σ w dw of a row is the product of its output and gradient.
        row_sums = (grad.to(work.wide) * out).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k, dtype=work.wide), torch.zeros_like(v, dtype=work.wide)
        diagonals = _Diagonals(work) if ctx.needs_input_grad[3] else None
        for index, tile in enumerate(work.make_tiles()):
            # 2^(ℓ - log2 Σ 2^ℓ): from the sums that were kept the weights come out divided already.
            weights = work.compute_powers(work.compute_logits(tile).sub_(logsum[tile.query_rows]))
            _add_product(dv[tile.key_rows], work.apply_dropout(weights, index).to(v.dtype).mT, grad[tile.query_rows])
            dweights = work.multiply("dweights", grad[tile.query_rows], v[tile.key_rows])
            dlogits = work.apply_dropout(dweights, index).sub_(row_sums[tile.query_rows]).mul_(weights)
            if diagonals is not None:
                diagonals.add(tile, dlogits)
            narrow = dlogits.to(q.dtype)
            dq[tile.query_rows] = narrow @ k[tile.key_rows]
            _add_product(dk[tile.key_rows], narrow.mT, q[tile.query_rows])
        # These are gradients of scale·q·k: dq lacks the scale, and dk, of products with scale·log2(e)·q, has log2(e).
        gradients = (dq.mul_(ctx.scale), dk.div_(LOG2E).flip(1).to(k.dtype), dv.flip(1).to(v.dtype))
        dqkv = (x.unflatten(0, grads[0].shape[:2]) for x in gradients)
        dsink = work.compute_sink_gradient(logsum, row_sums) if ctx.needs_input_grad[5] else None
        dcurve = None if diagonals is None else diagonals.sums[:, : curve.shape[1]]
        return *dqkv, dcurve, None, dsink, None, None, None


class _Diagonals:
    """The gradient of the curve: the sums over all queries and keys at one distance.

    The logits of a tile are written as rows of n + rows numbers, padded with zeros, and the same memory is read as rows
    of n + rows - 1 numbers. Each row then begins one number later than the row before, so that the numbers of one
    diagonal are in one column, and a sum over rows is the sum along the diagonals.
    """

    def __init__(self, work: TileWork) -> None:
        self.work, self.line = work, work.line
        longer = self.line.step if self.line.run < work.k.shape[1] else 0
        self.sums = work.curve.new_zeros(len(work.curve), work.curve.shape[1] + longer)

    def add(self, tile: _Tile, dlogits: Tensor) -> None:
        """Add the gradient of a tile's logits; the gaps between runs of keys are zeros here."""
        runs, rows = self.line.count_runs(tile.rows.stop - tile.rows.start)
        groups, keys = self.line.count_runs(tile.keys.stop - tile.keys.start)
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


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to ``total`` in place, without a temporary where the types allow."""
    if total.dtype == a.dtype:
        total.baddbmm_(a, b)
    else:
        total += a @ b
