"""What does distance alone do to attention? The curve of logits by distance, whatever the tokens are.

In names of tensors ``j`` are the offsets that the mask allows, ``n`` the pairs of one diagonal or the random orders.
"""

from __future__ import annotations

import torch

from clockhands.findings import SHARE, Figure, Finding, Reference, Table, draw_columns, put_together
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import (
    describe_untrained,
    format_estimate,
    format_percent,
    format_percent_range,
)
from clockhands.inspection.reading.logit_split import (
    DISTANCE,
    ROUNDING,
    LogitParts,
    LogitSplit,
    compute_group_interval,
    split_first_batch,
    sum_groups,
)
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

FARTHEST = 64
"""The largest distance in the table, in tokens either way."""
DISTANCE_MECHANISMS = {"rotary", "alibi", "buckets", "disentangled", "transformer-xl", "attention"}
"""Mechanisms (``Subject.mechanisms``) whose attention depends, or may depend, on the distance of two tokens."""
DRAWN_OFFSETS, DRAWN_HEADS = 48, 12
"""The largest offset in the figure, either way, and the curves in it."""
LEAST_LOGIT = 1e-4
"""A curve that stays below this changes no weight of attention by more than this part of it."""
SHUFFLES = 200
"""Random orders of the distances that the curves are compared with."""


class DistanceCurve(Measure):
    """The distance curve of every head, and its share of the logits by layer."""

    name = "kernel"  # saved findings keep this name (no kernel of attention is meant), and "beyond" in their details
    question = "What does distance alone do to attention?"
    references = ("distances shuffled", "untrained")
    method = (
        "The constant part of the queries against the constant part of the keys, plus what the layer adds for a "
        "distance: exactly a function of i−j in a relative scheme (for rotation it is s μ_q·R(j−i)μ_k, for ALiBi the "
        "slope times the distance, for T5 the bucket's bias). Drawn per head as logits, less each curve's mean; "
        "'share' is its part of the variance of the logits. Interval: texts resampled. Distances shuffled: each head's "
        "curve with its distances in another order, 200 times, the largest share of any layer each time; an effect of "
        "distance is reported where the interval lies above 97.5 % of those. Untrained: fresh weights."
    )
    source = "Su et al. 2021; Press et al. 2022; Raffel et al. 2020, section 2.1"
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every layer; the value is the share of distance in the layer where it is largest."""
        subject, splits = reading.subject, reading.logit_splits
        if subject.mechanisms and not DISTANCE_MECHANISMS & set(subject.mechanisms):
            return self.skip(f"Its attention adds nothing for a distance. {subject.mechanism_sentence}")
        shares, untrained_shares = reading.with_control(
            lambda either: [sum_groups(split.compute_layer_shares())[DISTANCE] for split in either.logit_splits]
        )
        largest = max(range(len(shares)), key=shares.__getitem__)
        untrained = untrained_shares[largest] if untrained_shares else None
        read = [_compute_distance_curve(split_first_batch(layer)) for layer in reading.capture.layers]
        curves = [curve_HJ for curve_HJ, _ in read]
        low, high = compute_group_interval(splits[largest], DISTANCE)
        share, interval = format_estimate(shares[largest], low, high)
        # The layer of the value is the one with the largest share, and so is that of every shuffle.
        shuffled = [_compute_shuffled_shares(curve_HJ, split) for curve_HJ, split in zip(curves, splits, strict=True)]
        shuffled_n = torch.stack(shuffled).amax(0)
        chance = compute_central_range(shuffled_n)
        exceeds_chance = low > max(chance[1], ROUNDING)
        numbers = f"({interval}; distances shuffled {format_percent_range(*chance)}{describe_untrained(untrained)})"
        verdict = (
            f"Whether distance alone has an effect is undecided: it accounts for at most {share} of the variance of a "
            f"layer's logits, in layer {largest + 1} {numbers}, and shuffled distances may do as well."
        )
        if max(float(curve_HJ.nan_to_num().abs().max()) for curve_HJ in curves) < LEAST_LOGIT:
            verdict = f"Distance alone adds next to nothing: it changes no logit by {LEAST_LOGIT} or more."
        if exceeds_chance:
            head_shares = [sum_groups(row)[DISTANCE] for row in splits[largest].compute_head_shares()]
            head = max(range(len(head_shares)), key=head_shares.__getitem__)
            verdict = (
                f"Distance alone accounts for up to {share} of the variance of a layer's logits, in layer "
                f"{largest + 1} {numbers}; there its share is largest in head {head + 1} "
                f"({format_percent(head_shares[head])})."
            )
        return self.make_finding(
            verdict,
            shares[largest],
            untrained=untrained,
            unit=SHARE,
            interval=(low, high),
            references=(Reference("distances shuffled", float(shuffled_n.mean()), chance),),
            table=_make_table(curves),
            figure=_draw_figure(curves[largest], largest, shares, untrained_shares),
            details={
                "share": shares,
                "spread_along_diagonals": max(spread for _, spread in read),
                "beyond": exceeds_chance,
            },
        )


def _compute_distance_curve(parts: LogitParts) -> tuple[Float[Tensor, "H J"], float]:
    """Compute a layer's mean logit of distance alone at each offset, and its largest spread along a diagonal.

    The offsets are −(T−1) … T−1, key position less query position. A spread of 0 means that the logit depends on the
    offset alone. Every query's logit at its own position is subtracted from its row, because ALiBi is often stored with
    another constant per row, which softmax cannot see. Offsets that the mask forbids are NaN. In float64. The curve is
    read on the first text: where queries and keys are normalised, their norms are those of that text.
    """
    logits_HST = (parts.compute_term("constant–constant") + parts.compute_term("added, constant"))[0].double().cpu()
    logits_HST = logits_HST - torch.diagonal(logits_HST, dim1=1, dim2=2)[..., None]
    logits_HST = logits_HST.masked_fill(~parts.real.mask_BHST[0].cpu(), torch.nan)
    length = logits_HST.shape[-1]
    diagonals = [torch.diagonal(logits_HST, offset, dim1=1, dim2=2) for offset in range(1 - length, length)]
    curve_HJ = torch.stack([diagonal.nanmean(-1) for diagonal in diagonals], dim=-1)
    return curve_HJ, max(map(_measure_spread, diagonals))


def _measure_spread(diagonal_Hn: Float[Tensor, "H n"]) -> float:
    """Return how far the logits of one diagonal lie from the first that the mask allows; 0 where it allows none."""
    first_H1 = diagonal_Hn.isfinite().int().argmax(-1, keepdim=True)
    return float((diagonal_Hn - diagonal_Hn.gather(-1, first_H1)).nan_to_num().abs().max())


def _compute_shuffled_shares(curve_HJ: Float[Tensor, "H J"], split: LogitSplit) -> Float[Tensor, " n"]:
    """Compute the share of the logits that the curves would have with their distances in n = 200 random orders."""
    allowed = ~curve_HJ.isnan().any(0)
    curve_Hj, sums_Hj = curve_HJ[:, allowed].double(), split.logit_sums_by_offset_HJ[:, allowed]
    generator = torch.Generator().manual_seed(0)
    orders = (torch.randperm(curve_Hj.shape[1], generator=generator) for _ in range(SHUFFLES))
    variance = float(split.var_NH.sum().clamp_min(1e-30))
    return torch.stack([(curve_Hj[:, order] * sums_Hj).sum() for order in orders]) / variance


def _make_table(curves: list[Tensor]) -> Table:
    """Return the curves of every layer, near offsets only; a forbidden offset is NaN, which equals nothing."""
    rows = [
        (layer, head, index - len(curve_J) // 2, value)
        for layer, curve_HJ in enumerate(curves, 1)
        for head, curve_J in enumerate(curve_HJ.tolist(), 1)
        for index, value in enumerate(curve_J)
        if value == value and abs(index - len(curve_J) // 2) <= FARTHEST
    ]
    return Table.of(("layer", "head", "offset", "logit"), rows)


def _draw_figure(curve_HJ: Tensor, layer: int, shares: list[float], untrained: list[float] | None) -> Figure:
    """Draw the curves of the heads of one layer, and the share of distance in every layer."""
    reach = (curve_HJ.shape[-1] - 1) // 2
    near = slice(max(0, reach - DRAWN_OFFSETS), reach + DRAWN_OFFSETS + 1)
    offsets = torch.arange(-reach, reach + 1)[near]
    allowed = ~curve_HJ[:, near].isnan().all(0)
    curves = draw_columns(
        "line",
        offsets[allowed],
        {
            f"head {head}": (curve_J - curve_J.nanmean())[near][allowed]
            for head, curve_J in enumerate(curve_HJ[:DRAWN_HEADS], 1)
        },
        levels={"": 0.0},
        panel=f"Layer {layer + 1}",
        xlabel="key position − query position",
        ylabel="logit",
    )
    by_layer = draw_columns(
        "bars",
        [str(index + 1) for index in range(len(shares))],
        {"this model": shares},
        main="this model",
        points={"untrained": untrained},
        panel="By layer",
        xlabel="layer",
        ylabel="share of logit variance",
    )
    return put_together((curves, by_layer), columns=2, title="What distance alone adds to the logits")
