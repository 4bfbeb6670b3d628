"""Which heads attend by position, how far do they attend, and does cross-attention go by position?

In names of tensors ``N`` are texts, ``g`` groups of texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from clockhands.findings import (
    SHARE,
    Figure,
    Finding,
    Reference,
    Table,
    choose_digits,
    draw_columns,
    draw_heatmap,
    join_words,
    put_together,
)
from clockhands.inspection.estimators.intervals import compute_central_range, compute_jackknife_interval, draw_texts
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent
from clockhands.inspection.reading.attention_hooks import ComputedAttention, listen
from clockhands.inspection.reading.capture import BATCH, Capture
from clockhands.inspection.reading.head_statistics import MAX_OFFSET, SAME_TOKEN, HeadStatistics, PositionSums
from clockhands.inspection.reading.reading import Reading
from clockhands.models.subject import Subject
from clockhands.shapes import Float, Tensor

MOSTLY_EXPLAINED = 0.6
"""From this share on, a head is counted as attending mostly by position."""
MOST_NAMED = 6
"""Heads whose names a verdict lists."""


def draw_head_grid(grid_LH: Float[Tensor, "L H"], title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; both are numbered from 1, each cell named."""
    layers, heads = (range(1, count + 1) for count in grid_LH.shape)
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    where: dict[str, Any] = {"x": tuple(heads), "y": tuple(layers), "names": names}
    return draw_heatmap(grid_LH, title=title, xlabel="head", ylabel="layer", label="share", **where)


class HeadsByPosition(Measure):
    """How much of every head's attention the pair of positions explains, and which heads have a name."""

    name = "heads.positional"
    question = "Which heads attend by position?"
    references = ("untrained",)
    method = (
        "Attention is renormalised over ordinary tokens. 'By position' in the table is the share of its variance "
        "(around uniform attention over the keys a query may attend to) that the pair (i, j) of positions explains "
        "alone: the squares of the mean over texts, less what chance puts there (the residual mean square), over all "
        "squares; 0 for attention that does not depend on positions, 1 for attention that is the same on every text. A "
        f"head is named after an offset, one of at most {MAX_OFFSET} tokens that at least half of the queries have, if "
        "on average half of its attention goes there, else after one position of the window if half goes there "
        "(special tokens count, before attention is renormalised). Where the token at that position is the same in "
        f"{SAME_TOKEN:.0%} of the texts, it changes places with another one: a head follows the position if half of "
        "its attention or more stays there, and the token if half or more goes along, each beyond the 95 % interval of "
        "the difference over texts. A head that follows the token, or of which this is undecided, is not counted as "
        f"attending by position; others are from a share of {MOSTLY_EXPLAINED}. In place of an interval stand two "
        "counts: the heads whose own 95 % interval (jackknife over eight groups of texts) lies above that share, and "
        "the heads whose interval reaches it, undecided ones among them; there are no counts where no interval "
        "reaches it. Untrained: fresh weights."
    )
    source = (
        "unbiased one-way analysis of variance, by pair of positions; named heads after Clark et al. 2019 and Voita et "
        "al. 2019; sinks after Xiao et al. 2023"
    )
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the number of heads that attend mostly by position."""
        layers = reading.head_statistics
        shares_LH = torch.stack([layer.by_position_H for layer in layers])
        low_LH, high_LH = torch.stack([layer.by_position_interval_H2 for layer in layers]).unbind(-1)
        count, untrained = reading.with_control(
            lambda either: either.count_by_position(
                torch.stack([layer.by_position_H for layer in either.head_statistics]), MOSTLY_EXPLAINED
            )
        )
        surely = reading.count_by_position(low_LH, MOSTLY_EXPLAINED)
        possibly = reading.count_by_position(high_LH, MOSTLY_EXPLAINED, undecided=True)
        table = _make_table(reading)
        names = [f"layer {row[0]} head {row[1]}: {row[-1]}" for row in table.rows if row[-1]]
        more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        named = (
            f"No head gives half of its attention to one offset (of at most {MAX_OFFSET} tokens) or to one position."
        )
        if names:
            named = "Heads that give at least half of their attention to one offset or position: "
            named += f"{'; '.join(names[:MOST_NAMED])}{more}."
        untrained_note = f"; untrained {untrained}" if untrained is not None else ""
        return self.make_finding(
            f"{count} of {shares_LH.numel()} heads attend mostly by position ({surely} surely and {possibly} "
            f"possibly, by each head's own 95 % interval{untrained_note}). {named}",
            float(count),
            interval=(float(surely), float(possibly)) if possibly else None,
            unit="heads",
            untrained=untrained,
            light="good" if surely else "info",
            table=table,
            figure=draw_head_grid(shares_LH, "Share of attention variance explained by position"),
            details={"named": names},
        )


def _make_table(reading: Reading) -> Table:
    """List every head: its share, its attention at single offsets and positions, and how far it attends."""
    columns = (
        "layer", "head", "by position", "previous", "itself", "next", "favourite offset", "its share",
        "favourite position", "its share of attention", "stays at the position", "goes with the token",
        "mean distance", "name",
    )  # fmt: skip
    rows = []
    for index, layer in enumerate(reading.head_statistics):
        for head in range(len(layer.by_position_H)):
            sink = reading.sinks.get((index, head))
            rows.append(
                (
                    index + 1, head + 1, layer.by_position_H[head],
                    *(layer.get_attention_at(r)[head] for r in (-1, 0, 1)), layer.favourite_offset_H[head],
                    layer.favourite_share_H[head], layer.place_H[head], layer.place_share_H[head],
                    sink.at_position if sink else None, sink.at_token if sink else None, layer.distance_H[head],
                    sink.describe() if sink else layer.name_head(head),
                )
            )  # fmt: skip
    return Table.of(columns, rows)


NEAR = 0.5
"""A layer attends near if its median distance is below this part of that of uniform attention."""
MOST_PANELS = 6
"""Layers that are drawn."""


class HeadsDistance(Measure):
    """How far the heads of every layer attend, against uniform attention."""

    name = "heads.distance"
    question = "How far do the heads attend?"
    references = ("uniform attention",)
    method = (
        "The mean of |i−j| under a head's attention, over ordinary tokens; queries from the middle half of the "
        "window, so that there are keys on both sides (all but the first four where keys lie on one side only). "
        "Interval: texts resampled. Uniform attention: the same mean over all keys that a query of that layer may "
        "attend to."
    )
    source = "Clark et al. 2019; attention distance as in Dosovitskiy et al. 2021"
    heading = LAYERS_HEADING
    rests_on = MASKED_WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every head; the value is the median over heads of the layer where it is smallest, in tokens."""
        layers = reading.head_statistics
        medians = [float(layer.distance_H.quantile(0.5)) for layer in layers]
        nearest = min(range(len(medians)), key=medians.__getitem__)
        uniform, distance_NH = layers[nearest].uniform_distance, layers[nearest].distance_NH
        low, high = _bootstrap_median(distance_NH)
        places = min(2, choose_digits(low, high, 1))
        near = [
            str(i) for i, (m, at) in enumerate(zip(medians, layers, strict=True), 1) if m < NEAR * at.uniform_distance
        ]
        which = "No layer attends" if not near else f"Layer {near[0]} attends"
        if len(near) > 1:
            which = f"Layers {join_words(near)} attend"
        return self.make_finding(
            f"Layer {nearest + 1} attends nearest, at a median over heads of {medians[nearest]:.{places}f} tokens "
            f"(95 % interval {low:.{places}f} to {high:.{places}f}); uniform attention there would be {uniform:.1f} "
            f"tokens far. {which} less than half as far as uniform attention.",
            medians[nearest],
            interval=(low, high),
            unit="tokens",
            references=(Reference("uniform attention", uniform),),
            table=Table.of(
                ("layer", "head", "mean distance", "uniform"),
                [
                    (index + 1, head, distance, layer.uniform_distance)
                    for index, layer in enumerate(layers)
                    for head, distance in enumerate(layer.distance_H, 1)
                ],
            ),
            figure=_draw_distances(layers),
        )


def _draw_distances(layers: Sequence[HeadStatistics]) -> Figure:
    """Draw attention by offset in at most ``MOST_PANELS`` layers: the mean over heads, and the most local head."""
    figures = []
    for index in range(0, len(layers), max(1, -(-len(layers) // MOST_PANELS))):
        layer = layers[index]
        allowed = layer.uniform_by_offset_J > 0  # by this layer's own mask, which may be a sliding window
        # The most local head is the one with the most attention at one offset that half of the queries have.
        most_local = int(layer.favourite_share_H.argmax())
        most = format_percent(float(layer.favourite_share_H[most_local]))
        columns = {
            "mean over heads": layer.attention_by_offset_HJ.mean(0)[allowed],
            "most local head": layer.attention_by_offset_HJ[most_local][allowed],
            "uniform": layer.uniform_by_offset_J[allowed],
        }
        figures.append(
            draw_columns(
                "line",
                torch.arange(-MAX_OFFSET, MAX_OFFSET + 1)[allowed],
                columns,
                main="mean over heads",
                reference=("uniform",),
                panel=f"Layer {index + 1}, most local head {most_local + 1} ({most})",
                xlabel="key position − query position",
                ylabel="share of attention",
            )
        )
    return put_together(figures, columns=2, title="Attention by distance of the key")


def _bootstrap_median(distance_NH: Float[Tensor, "N H"]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the median over heads of the mean over texts."""
    return compute_central_range(distance_NH[draw_texts(len(distance_NH))].mean(1).quantile(0.5, dim=-1))


MOST_APART = 2
"""A source position is near a target position if their numbers differ by at most this."""


def _read_cross_attention(subject: Subject, capture: Capture) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run a decoder over all texts, and count the cross-attention of its ordinary tokens.

    Returns [L, H] the share of the variance of attention, around uniform attention, that the pair of positions explains
    alone; [L, g, H] the same without each group of texts; [L, H] the attention to source positions near the target's
    own number; [L] the same of uniform attention.
    """
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
        near_TS = (ordinary_T.nonzero() - torch.arange(weights_HTS.shape[-1])).abs() <= MOST_APART
        count = position_sums.num_texts * weights_HTS.shape[-2]
        near_H, near_uniform = ((summed * near_TS).sum((-1, -2)) / count for summed in (weights_HTS, uniform_1TS))
        layers.append((shares_H, without_gH, near_H, near_uniform.mean()))
    shares_LH, without_LgH, near_LH, uniform_L = map(torch.stack, zip(*layers, strict=True))
    return shares_LH, without_LgH, near_LH, uniform_L


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
        (shares_LH, without_LgH, near_LH, uniform_L), fresh = reading.with_control(
            lambda either: _read_cross_attention(either.subject, either.capture)
        )
        value, untrained = float(shares_LH.mean()), float(fresh[0].mean()) if fresh else None
        low, high = compute_jackknife_interval(value, without_LgH.mean((0, 2)))
        shown, numbers = format_estimate(value, low, high)
        numbers += describe_untrained(untrained)
        verdict = (
            "Whether positions alone have an effect on the attention over the source is undecided: they explain "
            f"{shown} of its variance ({numbers})."
        )
        if low > 0:
            index, head = divmod(int(shares_LH.argmax()), shares_LH.shape[1])
            verdict = (
                f"Positions alone explain {shown} of the variance of the attention over the source, on average over "
                f"heads ({numbers}); most in layer {index + 1} head {head + 1} "
                f"({format_percent(float(shares_LH.max()))}), which puts {format_percent(float(near_LH[index, head]))} "
                f"of its attention within {MOST_APART} positions of the target's own number (uniform attention "
                f"{format_percent(float(uniform_L[index]))})."
            )
        return self.make_finding(
            verdict,
            value,
            untrained=untrained,
            unit=SHARE,
            interval=(low, high),
            table=Table.of(  # saved tables keep these names, in which a position is a place
                ("layer", "head", "by place", f"attention within {MOST_APART} places", "uniform"),
                [
                    (layer, head, shares_LH[layer - 1, head - 1], near_LH[layer - 1, head - 1], uniform_L[layer - 1])
                    for layer in range(1, len(shares_LH) + 1)
                    for head in range(1, shares_LH.shape[1] + 1)
                ],
            ),
            figure=draw_head_grid(shares_LH, "Share of cross-attention explained by position"),
        )
