"""Compute the tiles of an attention with a bias by distance: which keys a tile has, its logits, weights and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, cast

import torch

from clockhands.attention.line import Line
from clockhands.shapes import Tensor

ROWS, ELEMENTS = 128, 1 << 18
"""The most queries of a tile, and about how many weights it has."""
LOG2E = 1 / math.log(2)
"""log2(e): e to the power of a logit is 2 to the power of this times the logit."""


class Tile(NamedTuple):
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
        line: Line,
        seed: int,
    ) -> None:
        self.q, self.k, self.v, self.curve = q, k, v, (curve * LOG2E).contiguous()
        # The logits of sinks, [B·H, 1, 1].
        self.sink = None if sink is None else (sink * LOG2E).repeat(len(q) // len(curve))[:, None, None]
        self.masked = None if mask is None else ~mask.flip(-1)
        self.dropout, self.line, self.seed = dropout, line, seed
        # The type of logits, weights and sums; the first and last index of each head's curve that a tile needs; and the
        # logit, in units of ln 2, below which a weight is set to 0 (``_compute_powers``).
        self.wide = torch.promote_types(q.dtype, torch.float32)
        self.spans = _find_spans(
            self.curve, None if mask is not None else self._compute_reach(), line.get_offset(q.shape[1] - 1)
        )
        self.lowest = 0.7 * math.log2(torch.finfo(self.wide).smallest_normal)
        self.memory: dict[str, Tensor] = {}

    def _compute_reach(self) -> Tensor:
        """Return how far apart two logits of a head can be before the smaller one's weight is lost in rounding: [H]."""
        longest_q, longest_k = (
            x.to(self.wide).norm(dim=-1).view(-1, len(self.curve), x.shape[1]).amax((0, 2)) for x in (self.q, self.k)
        )
        return 2 * longest_q * longest_k - 2 * math.log2(torch.finfo(self.wide).eps)

    def make_tiles(self) -> Iterator[Tile]:
        """Yield tiles of about ``ELEMENTS`` weights. Their queries are of one run, or of a few whole ones."""
        queries, run = self.q.shape[1], self.line.run
        rows = min(queries, ROWS) if run >= queries else max(1, ROWS // run) * run
        for batch_heads, heads in self._split_heads(max(1, ELEMENTS // (rows * self.k.shape[1]))):
            low, high = min(span[0] for span in self.spans[heads]), max(span[1] for span in self.spans[heads])
            for start in range(0, queries, rows):
                stop = min(start + rows, queries)
                keys = self._find_keys(low - self.line.get_offset(stop - 1), high - self.line.get_offset(start))
                if keys.start < keys.stop:
                    yield Tile(batch_heads, heads, slice(start, stop), keys)

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

    def compute_unnormalised(self, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """Compute a tile's weights before they are divided by their sum, that sum, and its logarithm.

        The largest logit of a row is subtracted before its powers are taken, and counts in the logarithm again. A row
        that may attend to no key has zeros, and 1 for their sum. A sink counts in the sum as a key does.
        """
        logits = self.compute_logits(tile)
        largest = logits.amax(-1, keepdim=True).clamp_(min=torch.finfo(self.wide).min)
        sink = None if self.sink is None else self.sink[tile.batch_heads]
        largest = largest if sink is None else torch.maximum(largest, sink)
        weights = self._compute_powers(logits.sub_(largest))
        total = weights.sum(-1, keepdim=True)
        total = total if sink is None else total.add_((sink - largest).exp2_())
        total.masked_fill_(total == 0, 1.0)
        return weights, total, largest + total.log2()

    def compute_weights_again(self, tile: Tile, logsum: Tensor) -> Tensor:
        """Compute the weights of a tile again, in the backward pass."""
        return self._compute_powers(self.compute_logits(tile).sub_(logsum))

    def compute_sink_gradient(self, logsum: Tensor, row_sums: Tensor) -> Tensor:
        """Compute the gradient of the logits of sinks, [H], of the logarithmic sums and Σ w dw of all rows.

        The gradient of a logit is w (dw - Σ w dw), and dw is 0, since the value of a sink is.
        """
        weights = (cast(Tensor, self.sink) - logsum).exp2_()
        return -(weights * row_sums).view(-1, len(self.curve), weights.shape[1]).sum((0, 2))

    def _compute_powers(self, logits: Tensor) -> Tensor:
        """Compute 2^logit in place, and 0 for logits below ``lowest`` (the largest of a row is 0).

        In float32 that is 2^-88. Smaller weights and their products could be subnormal numbers, with which an Intel
        core computes a hundred times more slowly. exp is slow for such logits and for -inf too, exp2 is not.
        """
        return torch.threshold_(logits, self.lowest, -torch.inf).exp2_()

    def compute_logits(self, tile: Tile) -> Tensor:
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

    def view_bias(self, tile: Tile) -> Tensor:
        """Return the curve over the pairs of a tile, as a view.

        Its axes are [heads, runs of queries, queries, runs of keys, keys].
        """
        curve, step = self.curve[tile.heads], self.line.step
        rows, keys = (self.line.count_runs(part.stop - part.start) for part in (tile.rows, tile.keys))
        start = curve.storage_offset() + self.line.get_offset(tile.rows.start) + self.line.get_offset(tile.keys.start)
        return curve.as_strided((len(curve), *rows, *keys), (curve.stride(0), step, 1, step, 1), start)

    def apply_dropout(self, weights: Tensor, number: int) -> Tensor:
        """Apply dropout to weights; the same ones are dropped whenever the tile of this number is computed."""
        if not self.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed + number)
        kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
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
