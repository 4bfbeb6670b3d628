"""What does distance alone do to attention? The curve of logits by distance, whatever the tokens are.

In names of tensors ``j`` are the offsets that the mask allows, ``n`` the pairs of one diagonal or the random orders.
Saved findings, and the script of the page, call its view ``kernel``; it has nothing to do with kernels of attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from clockhands.findings import SHARE, Figure, Finding, Reference, Table, draw_columns, put_together
from clockhands.inspection.drawing import LARGEST_INT16, pack_int8, pack_int16
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import (
    ATTENTION_HEADING,
    WINDOWS,
    Measure,
    group_alike,
    make_untrained_reference,
)
from clockhands.inspection.measures.rotation import RotationHands, read_rotation_hands
from clockhands.inspection.number_format import describe_untrained, format_percent, format_percent_range
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

MOST_NUMBERS = 60_000
"""Values of all curves that a page carries, two bytes each; heads beyond are left out, and the page says so."""
FARTHEST = 64
"""The largest distance that is shown, in tokens either way."""
FORBIDDEN = -32768
"""Stands where the mask allows no pair of tokens at such a distance."""
ALIKE = 1e-3
"""Layers whose frequencies differ by no larger part rotate alike."""


def make_distance_view(
    curves: Sequence[Float[Tensor, "H J"]], hands: Sequence[RotationHands | None]
) -> dict[str, Any] | None:
    """Return the data of the page's view ``kernel``: plain values, for the ``details`` of a finding.

    Args:
        curves: the logit by distance of every layer and head, key position less query position from -(T-1) to T-1; NaN
            where the mask forbids it.
        hands: what ``read_rotation_hands`` returns of each layer.

    Returns:
        None where all curves are flat. Else ``kind``, the name of the view; ``first`` and ``last``, the distances
        between which there are values; ``left_out``, how many heads there is no room for, and ``strongest``, the index
        in ``heads`` of the one whose curve has the largest range; ``heads``, each with ``layer`` and ``head``
        (from 1), ``scale``, ``numbers`` (the logits in units of ``scale``, little-endian integers of 16 bits in base64)
        and ``weights`` (of each pair of channels in units of the largest / 127, integers of 8 bits in base64; empty
        where ``hands`` has None); ``kinds``, the ways in which the other layers rotate: their ``layers`` and
        ``frequencies`` in radians a token.
    """
    reach = min(FARTHEST, (curves[0].shape[-1] - 1) // 2)
    middle = (curves[0].shape[-1] - 1) // 2
    near = [curve_HJ[:, middle - reach : middle + reach + 1] for curve_HJ in curves]
    allowed = torch.cat(near).isfinite().any(0).nonzero().flatten()
    first, last = int(allowed[0]), int(allowed[-1])
    near = [curve_HJ[:, first : last + 1] for curve_HJ in near]
    all_heads = [(layer, head) for layer, curve_HJ in enumerate(near) for head in range(len(curve_HJ))]
    strength = {at: _measure_range(near[at[0]][at[1]]) for at in all_heads}
    if max(strength.values()) <= 0:
        return None
    room = max(1, MOST_NUMBERS // (last - first + 1))
    chosen = sorted(sorted(all_heads, key=lambda at: -strength[at])[:room])
    return {
        "kind": "kernel",
        "first": first - reach,
        "last": last - reach,
        "left_out": len(all_heads) - len(chosen),
        "strongest": chosen.index(max(chosen, key=strength.__getitem__)),
        "heads": [_pack_head(near[layer][head], hands[layer], layer, head) for layer, head in chosen],
        "kinds": group_layers(hands),
    }


def _measure_range(curve_J: Float[Tensor, " J"]) -> float:
    """Return the largest value of a curve less the smallest."""
    known = curve_J[curve_J.isfinite()]
    return float(known.max() - known.min()) if len(known) else 0.0


def _pack_head(curve_J: Float[Tensor, " J"], hands: RotationHands | None, layer: int, head: int) -> dict[str, Any]:
    """Return the numbers of one head."""
    known = curve_J.isfinite()
    scale = float(curve_J[known].abs().max()) / LARGEST_INT16 if bool(known.any()) else 0.0
    numbers = torch.where(known, (curve_J / (scale or 1.0)).nan_to_num(), float(FORBIDDEN))
    weights = None if hands is None else hands.weights_HF[head]
    packed = "" if weights is None else pack_int8(weights / weights.max().clamp_min(1e-30))
    return {"layer": layer + 1, "head": head + 1, "scale": scale, "numbers": pack_int16(numbers), "weights": packed}


def group_layers(hands: Sequence[RotationHands | None]) -> list[dict[str, Any]]:
    """Return the ways in which layers rotate, each with the numbers of its layers from 1, and its frequencies."""
    rotating = [(number, known.frequencies_F) for number, known in enumerate(hands, 1) if known is not None]
    kinds = group_alike(
        rotating,
        lambda first, second: (
            first[1].shape == second[1].shape and torch.allclose(first[1], second[1], rtol=ALIKE, atol=1e-7)
        ),
    )
    return [{"layers": [number for number, _ in kind], "frequencies": kind[0][1].tolist()} for kind in kinds]


DISTANCE_MECHANISMS = {"rotary", "alibi", "buckets", "disentangled", "transformer-xl", "attention"}
"""Mechanisms (``Subject.mechanisms``) whose attention depends, or may depend, on the distance of two tokens."""
DRAWN_OFFSETS, DRAWN_HEADS = 48, 12
"""The largest offset in the figure, either way, and the curves in it."""
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
        shares = _find_shares(splits)
        untrained_shares = _find_shares(reading.control.logit_splits) if reading.control else None
        largest = max(range(len(shares)), key=shares.__getitem__)
        untrained = untrained_shares[largest] if untrained_shares else None
        curves, spreads, hands = [], [], []
        for layer in reading.capture.layers:
            parts = split_first_batch(layer)
            curve_HJ, spread = compute_distance_curve(parts)
            curves.append(curve_HJ)
            spreads.append(spread)
            hands.append(read_rotation_hands(subject, layer, parts))
        low, high = compute_group_interval(splits[largest], DISTANCE)
        # The layer of the value is the one with the largest share, and so is that of every shuffle.
        shuffled = [_compute_shuffled_shares(curve_HJ, split) for curve_HJ, split in zip(curves, splits, strict=True)]
        shuffled_n = torch.stack(shuffled).amax(0)
        chance = compute_central_range(shuffled_n)
        exceeds_chance = low > max(chance[1], ROUNDING)
        numbers = (
            f"(95 % interval {format_percent_range(low, high)}; distances shuffled {format_percent_range(*chance)}"
            f"{describe_untrained(untrained)})"
        )
        return self.make_finding(
            _describe(largest, shares[largest], splits[largest], numbers, exceeds_chance),
            shares[largest],
            unit=SHARE,
            interval=(low, high),
            references=(
                Reference("distances shuffled", float(shuffled_n.mean()), chance),
                *make_untrained_reference(untrained),
            ),
            light="info",
            table=_make_table(curves, reading.capture.length - 1),
            figure=_draw_figure(curves[largest], largest, shares, untrained_shares),
            details={
                "view": make_distance_view(curves, hands),
                "share": shares,
                "spread_along_diagonals": max(spreads),
                "beyond": exceeds_chance,
            },
        )


def _find_shares(splits: Sequence[LogitSplit]) -> list[float]:
    """Return the share of distance in the variance of the logits, layer by layer."""
    return [sum_groups(split.compute_layer_shares())[DISTANCE] for split in splits]


def _describe(layer: int, share: float, split: LogitSplit, numbers: str, exceeds_chance: bool) -> str:
    """Say how much of the variance of a layer's logits distance accounts for, if more than shuffled distances.

    ``numbers`` is the text of its interval and of what it is compared with.
    """
    if not exceeds_chance:
        return (
            f"No effect of distance alone was found: it accounts for at most {format_percent(share)} of the variance "
            f"of a layer's logits, in layer {layer + 1} {numbers}."
        )
    head_shares = [sum_groups(row)[DISTANCE] for row in split.compute_head_shares()]
    head = max(range(len(head_shares)), key=head_shares.__getitem__)
    return (
        f"Distance alone accounts for up to {format_percent(share)} of the variance of a layer's logits, in layer "
        f"{layer + 1} {numbers}; there its share is largest in head {head + 1} ({format_percent(max(head_shares))})."
    )


def _make_table(curves: Sequence[Float[Tensor, "H J"]], reach: int) -> Table:
    """List the logit of every layer, head and offset that the mask allows; ``reach`` is the largest offset."""
    rows = [
        (layer + 1, head, index - reach, value)
        for layer, curve_HJ in enumerate(curves)
        for head, curve_J in enumerate(curve_HJ.tolist(), 1)
        for index, value in enumerate(curve_J)
        if value == value and abs(index - reach) <= FARTHEST  # a forbidden offset is NaN, which equals nothing
    ]
    return Table.of(("layer", "head", "offset", "logit"), rows)


def compute_distance_curve(parts: LogitParts) -> tuple[Float[Tensor, "H J"], float]:
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
    spread = max(map(_measure_spread, diagonals))
    return torch.stack([diagonal.nanmean(-1) for diagonal in diagonals], dim=-1), spread


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
