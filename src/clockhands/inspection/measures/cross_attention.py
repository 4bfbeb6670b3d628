"""Does cross-attention go by position? How much positions alone explain of a decoder's attention to its source.

In names of tensors ``g`` are groups of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.findings import SHARE, Finding, Table
from clockhands.inspection.estimators.intervals import compute_jackknife_interval
from clockhands.inspection.measures.heads import draw_head_grid
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.head_statistics import PositionSums
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

NEAR = 2
"""A source position is near a target position if their numbers differ by at most this."""


@dataclass(frozen=True)
class CrossStatistics:
    """The heads of one cross-attention layer over all texts.

    Attributes:
        by_position_H: the share of the variance of attention, around uniform attention, that the pair of positions
            explains alone.
        without_gH: the same without each group of texts.
        near_H: the attention to source positions near the target's own number.
        near_uniform: the same of uniform attention.
    """

    by_position_H: Float[Tensor, " H"]
    without_gH: Float[Tensor, "g H"]
    near_H: Float[Tensor, " H"]
    near_uniform: float


def read_cross_attention(subject: Subject, capture: Capture) -> list[CrossStatistics]:
    """Run a decoder over all texts and return the statistics of every cross-attention layer, at ordinary tokens."""
    ordinary_T = capture.ordinary_T
    # Of each layer the sums over texts of attention less uniform attention, of attention and of uniform attention.
    sums: dict[object, list[Any]] = {module: [PositionSums(), 0.0, 0.0] for module in capture.cross_modules}

    def receive(computed: ComputedAttention) -> None:
        if computed.module in sums:
            weights = computed.weights_BHST.cpu().double()[:, :, ordinary_T]
            mask = computed.mask_BHST[:, :1].cpu()[:, :, ordinary_T]
            uniform = mask / mask.sum(-1, keepdim=True).clamp_min(1)
            of_layer = sums[computed.module]
            of_layer[0].add(weights - uniform)
            of_layer[1] = of_layer[1] + weights.sum(0)
            of_layer[2] = of_layer[2] + uniform.sum(0)

    with listen(subject.model, receive):
        for rows in torch.arange(capture.num_texts).split(BATCH):
            subject.forward(capture.ids_NT[rows], **capture.make_forward_options(rows))
    layers = []
    for position_sums, weights_HTS, uniform_1TS in sums.values():
        shares_H, _, without_gH = position_sums.estimate_shares()
        near_TS = (ordinary_T.nonzero() - torch.arange(weights_HTS.shape[-1])).abs() <= NEAR
        count = position_sums.num_texts * weights_HTS.shape[-2]
        near_H, near_uniform = ((summed * near_TS).sum((-1, -2)) / count for summed in (weights_HTS, uniform_1TS))
        layers.append(CrossStatistics(shares_H, without_gH, near_H, float(near_uniform.mean())))
    return layers


class CrossAttentionByPosition(Measure):
    """How much of the attention of every cross-attention head is explained by positions alone."""

    name = "heads.across"
    question = "Does cross-attention go by position?"
    references = ("untrained",)
    method = (
        "The share of the variance of a head's attention (around uniform attention over the source, padding left out) "
        "that the pair (i, j) of positions explains alone, unbiased as for the heads of self-attention. 'Near' is the "
        "attention to source positions whose number differs by at most two from the target's own, beside what uniform "
        "attention would put there. The logits of cross-attention are not split: their queries and keys come from two "
        "texts, each with positions of its own. Interval: jackknife over eight groups of texts. Untrained: fresh "
        "weights."
    )
    source = "unbiased one-way analysis of variance, by pair of positions, as for self-attention"
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def answer(self, reading: Reading) -> Iterable[Finding]:
        """Yield the finding of an encoder or a decoder of an encoder-decoder; none for any other model.

        Cross-attention layers have their own numbering: what ``Measure.answer`` says of how self-attention layers are
        numbered does not apply.
        """
        if reading.subject.encoder_decoder is None:
            return ()
        return (self.run(reading),) if reading.capture.layers else super().answer(reading)

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the share that positions alone explain, the mean over heads."""
        if not reading.subject.reads_source:
            return self.skip(
                "An encoder reads its own text alone; only a decoder (`--side decoder`, side='decoder') has "
                "cross-attention."
            )
        if not reading.capture.cross_modules:
            reason = reading.capture.unread_reason or "no cross-attention over the source was seen"
            return self.skip(f"Not measured: {reason}.")
        layers, fresh = reading.with_control(lambda either: read_cross_attention(either.subject, either.capture))
        shares_LH = torch.stack([layer.by_position_H for layer in layers])
        value = float(shares_LH.mean())
        untrained = float(torch.stack([layer.by_position_H for layer in fresh]).mean()) if fresh else None
        without_g = torch.stack([layer.without_gH.mean(1) for layer in layers]).mean(0)
        low, high = compute_jackknife_interval(value, without_g)
        return self.make_finding(
            _describe(value, (low, high), untrained, layers),
            value,
            untrained=untrained,
            unit=SHARE,
            interval=(low, high),
            table=Table.of(  # saved tables keep these names, in which a position is a place
                ("layer", "head", "by place", f"attention within {NEAR} places", "uniform"),
                [
                    (index + 1, head + 1, share, layer.near_H[head], layer.near_uniform)
                    for index, layer in enumerate(layers)
                    for head, share in enumerate(layer.by_position_H)
                ],
            ),
            figure=draw_head_grid(shares_LH, "Share of cross-attention explained by position"),
        )


def _describe(
    value: float, interval: tuple[float, float], untrained: float | None, layers: Sequence[CrossStatistics]
) -> str:
    """Say how much positions alone explain, where the interval lies above zero, and of which head most."""
    shown, numbers = format_estimate(value, *interval)
    numbers += describe_untrained(untrained)
    if interval[0] <= 0:
        return (
            "No effect of positions alone on the attention over the source was found: they explain "
            f"{shown} of its variance ({numbers})."
        )
    shares_LH = torch.stack([layer.by_position_H for layer in layers])
    index, head = divmod(int(shares_LH.argmax()), shares_LH.shape[1])
    most, near = format_percent(float(shares_LH.max())), format_percent(float(layers[index].near_H[head]))
    return (
        f"Positions alone explain {shown} of the variance of the attention over the source, on average over heads "
        f"({numbers}); most in layer {index + 1} head {head + 1} ({most}), which puts {near} of its attention within "
        f"{NEAR} positions of the target's own number (uniform attention {format_percent(layers[index].near_uniform)})."
    )
