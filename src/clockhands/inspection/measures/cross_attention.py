"""Cross-attention: how much of where a decoder looks in its source is decided by place alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from clockhands.findings import Finding, Table
from clockhands.inspection.drawing import draw_head_grid, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import compute_jackknife_interval
from clockhands.inspection.estimators.position_sums import PositionSums
from clockhands.inspection.measures.measure import LAYERS, SIGHT, Measure
from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.inspection.reading.attention_hooks import listen
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Bool, Float, Tensor

NEAR = 2


@dataclass(frozen=True)
class CrossStatistics:
    """One cross-attention layer: by head, the share decided by place and the attention near the own number.

    ``without_GH`` is the share without each group of texts.
    """

    by_position_H: Float[Tensor, " H"]
    without_GH: Float[Tensor, "G H"]
    near_H: Float[Tensor, " H"]
    near_uniform: float


class _Counts:
    """Sums over the texts of one cross-attention layer."""

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.places = ordinary_T, PositionSums()
        self.weights = self.uniform = torch.zeros(())

    def add(self, call: AttentionCall, count: int) -> None:
        weights = call.weights_BHST[:count].cpu().double()[:, :, self.ordinary_T]
        allowed = call.mask_BHST[:count, :1].cpu()[:, :, self.ordinary_T]
        uniform = allowed / allowed.sum(-1, keepdim=True).clamp_min(1)
        self.places.add(weights - uniform)
        self.weights, self.uniform = self.weights + weights.sum(0), self.uniform + uniform.sum(0)

    def statistics(self) -> CrossStatistics:
        share, _, without = self.places.estimate_shares()
        rows, columns = self.weights.shape[-2:]
        places = self.ordinary_T.nonzero()
        near = (places - torch.arange(columns)).abs() <= NEAR
        masses = [(mean * near).sum((-1, -2)) / (self.places.texts * rows) for mean in (self.weights, self.uniform)]
        return CrossStatistics(share, without, masses[0], float(masses[1].mean()))


def statistics(subject: Subject, capture: Capture, batch: int = 8) -> list[CrossStatistics]:
    """Every cross-attention layer over all texts, streamed."""
    counts = {module: _Counts(capture.ordinary_T) for module in capture.cross_modules}
    for rows in torch.arange(capture.num_texts).split(batch):

        def receive(call: AttentionCall, count: int = len(rows)) -> None:
            if call.module in counts:
                counts[call.module].add(call, count)

        with listen(subject.model, receive):
            subject.forward(capture.ids_NT[rows], **capture.forward_options(rows))
    return [count.statistics() for count in counts.values()]


class CrossAttention(Measure):
    """How much of every cross-attention head is decided by place alone."""

    name = "heads.across"
    question = "Does it look into its source by place?"
    references = ("untrained",)
    method = (
        "The share of a head's attention over the source (around uniform attention over the source's real tokens) "
        "that the pair (i, j) of places explains alone, unbiased as for the heads of self-attention. 'Near' is the "
        "attention within two places of the query's own number, beside what uniform attention would put there. The "
        "logits of cross-attention are not split: their queries and keys come from two texts, each with places of its"
        " own. Interval: jackknife over eight groups of texts. Untrained: fresh weights."
    )
    source = "unbiased one-way analysis of variance, by pair of positions, as for self-attention"
    group = LAYERS
    rests_on = SIGHT
    reads_attention = True

    def answer(self, reading: Reading) -> Iterable[Finding]:
        if reading.subject.whole is None:
            return ()
        return (self.run(reading),) if reading.capture.layers else super().answer(reading)

    def run(self, reading: Reading) -> Finding:
        if not reading.capture.cross_modules:
            return self.skip("An encoder reads its own text alone; only a decoder (`--side decoder`) looks across.")
        found = statistics(reading.subject, reading.capture)
        control = reading.control
        fresh = None if control is None else float(_grid(statistics(control.subject, control.capture)).mean())
        grid = _grid(found)
        value = float(grid.mean())
        low, high = compute_jackknife_interval(
            value, torch.stack([layer.without_GH.mean(1) for layer in found]).mean(0)
        )
        untrained = f"; untrained {percent(fresh)}" if fresh is not None else ""
        return self.finding(
            _describe(value, low, f"95 % interval {percent_range(low, high)}{untrained}", _most(grid, found)),
            value,
            interval=(low, high),
            references=reference_untrained(fresh),
            light="info",
            table=_table(found),
            figure=draw_head_grid(grid, "Share of cross-attention explained by place"),
        )


def _describe(value: float, low: float, numbers: str, most: str) -> str:
    """Say how much place alone explains, where its interval lies above zero."""
    if low <= 0:
        return f"No effect of place alone on the attention over the source was found ({percent(value)}, {numbers})."
    return (
        f"Place alone explains {percent(value)} of the attention over the source, on average over heads ({numbers}); "
        f"{most}."
    )


def _grid(found: Sequence[CrossStatistics]) -> Float[Tensor, "L H"]:
    return torch.stack([layer.by_position_H for layer in found])


def _most(grid: Float[Tensor, "L H"], found: Sequence[CrossStatistics]) -> str:
    layer, head = divmod(int(grid.argmax()), grid.shape[1])
    near = float(found[layer].near_H[head])
    return (
        f"most in layer {layer + 1} head {head} ({percent(float(grid.max()))}), which spends {percent(near)} within "
        f"{NEAR} places of its own (uniform {percent(found[layer].near_uniform)})"
    )


def _table(found: Sequence[CrossStatistics]) -> Table:
    return Table.of(
        ("layer", "head", "by place", f"attention within {NEAR} places", "uniform"),
        [
            (index + 1, head, share, layer.near_H[head], layer.near_uniform)
            for index, layer in enumerate(found)
            for head, share in enumerate(layer.by_position_H)
        ],
    )
