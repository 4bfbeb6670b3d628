"""Cross-attention: how much of where a decoder looks in its source is decided by place alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.drawing import heatmap, percent, percent_range, skip, untrained_as
from clockhands.inspection.estimators.intervals import PlaceSums, jackknife_mean
from clockhands.inspection.reading.attention_call import AttentionCall
from clockhands.inspection.reading.attention_hooks import listening
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Bool, Float, Tensor

QUESTION = "Does it look into its source by place?"
METHOD = (
    "The share of a head's attention over the source (around uniform attention over the source's real tokens) "
    "that the pair (i, j) of places explains alone, unbiased as for the heads of self-attention. 'Near' is the "
    "attention within two places of the query's own number, beside what uniform attention would put there. The "
    "logits of cross-attention are not split: their queries and keys come from two texts, each with places of its"
    " own. Interval: jackknife over eight groups of texts. Untrained: fresh weights."
)
NEAR = 2


@dataclass(frozen=True)
class CrossStatistics:
    """One cross-attention layer: by head, the share decided by place and the attention near the own number.

    ``without_GH`` is the share without each group of texts.
    """

    by_place_H: Float[Tensor, " H"]
    without_GH: Float[Tensor, "G H"]
    near_H: Float[Tensor, " H"]
    near_uniform: float


class _Counts:
    """Sums over the texts of one cross-attention layer."""

    def __init__(self, ordinary_T: Bool[Tensor, " T"]) -> None:
        self.ordinary_T, self.places = ordinary_T, PlaceSums()
        self.weights = self.uniform = torch.zeros(())

    def add(self, call: AttentionCall, count: int) -> None:
        weights = call.weights_BHST[:count].cpu().double()[:, :, self.ordinary_T]
        allowed = call.allowed_BHST[:count, :1].cpu()[:, :, self.ordinary_T]
        uniform = allowed / allowed.sum(-1, keepdim=True).clamp_min(1)
        self.places.add(weights - uniform)
        self.weights, self.uniform = self.weights + weights.sum(0), self.uniform + uniform.sum(0)

    def statistics(self) -> CrossStatistics:
        share, _, without = self.places.shares()
        rows, columns = self.weights.shape[-2:]
        places = self.ordinary_T.nonzero()
        near = (places - torch.arange(columns)).abs() <= NEAR
        masses = [(mean * near).sum((-1, -2)) / (self.places.texts * rows) for mean in (self.weights, self.uniform)]
        return CrossStatistics(share, without, masses[0], float(masses[1].mean()))


def statistics(subject: Subject, capture: Capture, batch: int = 8) -> list[CrossStatistics]:
    """Every cross-attention layer over all texts, streamed."""
    counts = {module: _Counts(capture.ordinary_T) for module in capture.across}
    for rows in torch.arange(capture.texts).split(batch):

        def receive(call: AttentionCall, count: int = len(rows)) -> None:
            if call.module in counts:
                counts[call.module].add(call, count)

        with listening(subject.model, receive):
            subject.forward(capture.ids_NT[rows], **capture.given(rows))
    return [count.statistics() for count in counts.values()]


def across(subject: Subject, capture: Capture, control: tuple[Subject, Capture] | None = None) -> Finding:
    """How much of every cross-attention head is decided by place alone."""
    if not capture.across:
        return skip(
            "heads.across",
            QUESTION,
            "An encoder reads its own text alone; only a decoder (`--side decoder`) looks across.",
        )
    found = statistics(subject, capture)
    grid = torch.stack([layer.by_place_H for layer in found])
    fresh = torch.stack([layer.by_place_H for layer in statistics(*control)]) if control else None
    layer, head = divmod(int(grid.argmax()), grid.shape[1])
    near = found[layer].near_H[head]
    value = float(grid.mean())
    low, high = jackknife_mean(value, torch.stack([one.without_GH.mean(1) for one in found]).mean(0))
    untrained = f"; untrained {percent(float(fresh.mean()))}" if fresh is not None else ""
    columns = ("layer", "head", "by place", f"attention within {NEAR} places", "uniform")
    rows = [
        (index + 1, number, share, one.near_H[number], one.near_uniform)
        for index, one in enumerate(found)
        for number, share in enumerate(one.by_place_H)
    ]
    return Finding(
        name="heads.across",
        question=QUESTION,
        verdict=(
            f"Place alone explains {percent(value)} of the attention over the source, on average over heads (95 % "
            f"interval {percent_range(low, high)}{untrained}); most in layer {layer + 1} head {head} "
            f"({percent(float(grid.max()))}), which spends {percent(float(near))} within {NEAR} places of its own "
            f"(uniform {percent(found[layer].near_uniform)})."
        ),
        value=value,
        interval=(low, high),
        references=untrained_as(None if fresh is None else float(fresh.mean())),
        light="info",
        table=Table.of(columns, rows),
        figure=_figure(grid),
        method=METHOD,
        source="unbiased two-way analysis of variance, as for self-attention",
    )


def _figure(grid: Tensor) -> Figure:
    picture = heatmap(grid, x=tuple(range(grid.shape[1])), y=tuple(range(1, len(grid) + 1)))
    panel = Panel((picture,), title="Share of cross-attention explained by place", xlabel="head", ylabel="layer")
    return Figure((panel,))
