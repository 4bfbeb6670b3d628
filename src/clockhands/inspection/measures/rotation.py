"""Which pairs of channels attention rotates, how fast each rotates, and which of them its logits use.

In names of tensors ``N`` are texts, ``F`` the pairs of channels that rotate together, ``q`` a quarter of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import torch
from torch.nn.utils.rnn import pad_sequence

from clockhands.findings import SHARE, Figure, Finding, Reference, Table, draw_columns, join_words
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure
from clockhands.inspection.number_format import describe_untrained, format_estimate, format_percent
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import centre_logits, compute_means
from clockhands.inspection.reading.reading import Reading
from clockhands.model.attention import AttentionContext
from clockhands.models.subject import Subject
from clockhands.schemes import Composition, NoPosition, RoPE
from clockhands.shapes import Bool, Float, Int, Num, Tensor

COHERENCE = 0.99
"""A pair turns at one speed if its steps from one position to the next agree at least so well (1: exactly)."""
STANDING_STILL = 1e-8
"""A pair that turns by fewer radians a token counts as one that stands still: rounding in a window is as large."""
LEAST_READ = 1e-6
"""Pairs of this part of the largest length, or less, are not read: the angle of zeros would be noise."""


def _find_rotated_width(subject: Subject, layer: Layer, width: int) -> int:
    """Return how many of the ``width`` channels of a head rotate: those that partial rotary leaves alone come last."""
    if layer.scheme is not None:
        parts = layer.scheme.parts if isinstance(layer.scheme, Composition) else (layer.scheme,)
        ropes = [part for part in parts if isinstance(part, RoPE)]
        return ropes[0].channels if ropes else width
    rotary = getattr(getattr(subject.model, "config", None), "rotary_dim", None)
    if isinstance(rotary, int):
        return rotary
    for name, buffer in subject.model.named_buffers():
        if name.endswith("inv_freq"):
            return 2 * len(buffer)
    return width


def _remove_rotation(layer: Layer) -> Layer | None:
    """Return the same layer with all angles zero; None where the angles are not among its arguments.

    A layer of this project is given no scheme, one of transformers cosines of 1 (times any factor) and sines of 0.
    """
    contexts = [arg for arg in layer.args if isinstance(arg, AttentionContext)]
    if contexts:
        args = tuple(replace(arg, scheme=NoPosition()) if arg is contexts[0] else arg for arg in layer.args)
        return replace(layer, args=args)
    angles = layer.kwargs.get("position_embeddings")
    if not isinstance(angles, tuple) or len(angles) != 2:
        return None
    cos, sin = angles
    zero_angles = ((cos**2 + sin**2).sqrt(), torch.zeros_like(sin))
    return replace(layer, kwargs={**layer.kwargs, "position_embeddings": zero_angles})


def _estimate_frequencies(rotating_HTF: Num[Tensor, "H T F"]) -> Float[Tensor, " F"]:
    """Return by how many radians every pair turns from one position to the next; NaN for a pair without one speed.

    A pair has none that turns by different angles from place to place or from head to head, or is zero. The step of one
    position gives a first value, steps of 2, 4, 8, ... refine it.
    """
    sizes = rotating_HTF.abs()
    readable = sizes > LEAST_READ * sizes.amax()
    unit = torch.where(readable, rotating_HTF / sizes.clamp_min(1e-30), 0)
    frequencies_F = torch.zeros(rotating_HTF.shape[-1], dtype=torch.float64)
    coherent_F = torch.ones(rotating_HTF.shape[-1], dtype=torch.bool)
    for power in range(max(1, int(math.log2(rotating_HTF.shape[1])))):
        lag = 2**power
        expected = torch.polar(torch.ones_like(frequencies_F), frequencies_F * lag)
        steps = (unit[:, lag:] * unit[:, :-lag].conj()).sum((0, 1)) * expected.conj()
        counts = (readable[:, lag:] & readable[:, :-lag]).sum((0, 1))
        coherent_F &= steps.abs() >= COHERENCE * counts.clamp_min(1)
        frequencies_F = frequencies_F + steps.angle() / lag
    frequencies_F = frequencies_F.abs()
    frequencies_F = torch.where(frequencies_F < STANDING_STILL, 0.0, frequencies_F)
    return frequencies_F.masked_fill(~coherent_F, torch.nan)


class Rotation(NamedTuple):
    """Which channels of a head a layer rotates, and in which order their pairs turn.

    The ``width`` channels from ``start`` rotate, of ``channels`` in a head; ``interleaved``: neighbouring ones
    together, not those half of them apart. ``order_F`` are the numbers of the pairs, the fastest first; None unless
    each pair has one speed and some turn. Of the pairs, ``resting`` stand still.
    """

    start: int
    width: int
    channels: int
    interleaved: bool
    order_F: Int[Tensor, " F"] | None = None
    resting: int = 0

    @property
    def turns_nothing(self) -> bool:
        """Whether every pair stands still, so that the layer sees no position by its rotation."""
        return self.order_F is None and self.resting > 0

    @property
    def fastest(self) -> Int[Tensor, " q"]:
        """The numbers of the fastest quarter of the pairs, one at least."""
        order_F = cast(Tensor, self.order_F)
        return order_F[: max(1, len(order_F) // 4)]


def _read_rotation(subject: Subject, layer: Layer) -> Rotation:
    """Read which pairs a layer rotates from the queries and keys of one vector at every position.

    They turn and do nothing else. Where an architecture is not listed, channels are paired as gives each pair one
    speed. Where tokens choose positions, or a pair is zero, pairs are in the order of their channels, as RoPE has them;
    in the first case none is said to stand still.
    """
    constant = layer.replay(compute_means(layer, torch.arange(len(layer.inputs_NTD)))[0])
    vectors = torch.cat([constant.q_BHSK[0], constant.k_BHTK[0]]).double().cpu()
    channels = vectors.shape[-1]
    width = _find_rotated_width(subject, layer, channels)
    # Partial rotation leaves the last channels alone, multi-head latent attention (DeepSeek) the first.
    turns_K = (vectors - vectors[:, :1]).abs().amax((0, 1)) > LEAST_READ * vectors.abs().amax()
    start = channels - width if bool(turns_K.any()) and not bool(turns_K[: channels - width].any()) else 0
    rotation = Rotation(start, width, channels, subject.interleaved)
    if layer.locates_tokens:
        return rotation._replace(order_F=torch.arange(width // 2))
    for interleaved in dict.fromkeys((subject.interleaved, subject.interleaved or subject.has_unlisted_architecture)):
        rotated = vectors[..., start : start + width]
        # The two channels of a pair as one complex number.
        pairs = rotated.unflatten(-1, (-1, 2)) if interleaved else rotated.unflatten(-1, (2, -1)).mT
        turns_HTF = torch.view_as_complex(pairs.contiguous())
        frequencies_F = _estimate_frequencies(turns_HTF)
        zero_F = turns_HTF.abs().amax((0, 1)) <= LEAST_READ * turns_HTF.abs().amax()
        known = frequencies_F[~zero_F]
        if not bool(known.isnan().any()):
            fastest_first = frequencies_F.argsort(descending=True, stable=True)
            order_F = torch.arange(len(zero_F)) if bool(zero_F.any()) else fastest_first
            resting = int((known == 0).sum())
            return Rotation(start, width, channels, interleaved, order_F if resting < len(known) else None, resting)
    return rotation


class RotationFrequencies(Measure):
    """Shares of the pairs of channels that rotate together, and R² of the logits on q·k without rotation."""

    name = "kernel.frequencies"  # saved findings keep this name; no kernel of attention is meant
    question = "Which frequencies of the rotation does attention use?"
    references = ("equal pairs", "untrained")
    method = (
        "The logit is a sum over the pairs of channels that rotate together: share of pair f = cov(s q_f·k_f, "
        "logit)/var(logit), logits centred over keys. Which pairs are fastest is read from the queries and keys of one "
        "vector at every position; layers in which a pair has no single speed, or none turns, are left out. Where an "
        "architecture is not listed, channels are paired as gives each pair one speed. "
        "'Unrotated' is R² of the logits on q·k as it would be without rotation. Interval: texts resampled. Equal "
        "pairs: the share of those pairs if all channels of a head had the same. Untrained: fresh weights."
    )
    source = "Su et al. 2021; shares after Barbero et al. 2024, who use norms"
    heading = ATTENTION_HEADING
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        """Measure every layer; the value is the share of the fastest quarter of the pairs, the mean over layers."""
        subject, capture = reading.subject, reading.capture
        if "rotary" not in subject.mechanisms:
            return self.skip(f"No rotation was found. {subject.mechanism_sentence}")
        read = {index: _read_rotation(subject, layer) for index, layer in enumerate(capture.layers)}
        still = join_words(str(index + 1) for index, rotation in read.items() if rotation.turns_nothing)
        rotations = {index: rotation for index, rotation in read.items() if rotation.order_F is not None}
        if not rotations:
            reason = "No layer rotates each of its pairs of channels at one speed, so that none is the fastest."
            if all(rotation.turns_nothing for rotation in read.values()):
                reason = "No layer rotates anything: none of its pairs of channels turns from one position to the next."
            return replace(self.skip(reason), details={"layers without rotation": still} if still != "none" else {})
        quarters = [rotation.fastest for rotation in rotations.values()]

        def measure(either: Reading) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor], float]:
            """Return sums and shares of the pairs of each layer, and the mean share of their fastest quarters.

            Of the control they are the same pairs of the same layers, in the same order.
            """
            sums = [
                _compute_pair_sums(rotation, either.capture.layers[index], capture.ordinary_T)
                for index, rotation in rotations.items()
            ]
            # They sum to 1, less the share of a bias where the layer adds one.
            shares = [products_NF.sum(0) / squares_N.sum().clamp_min(1e-30) for products_NF, squares_N in sums]
            of_quarters = [float(shares_F[pairs].sum()) for shares_F, pairs in zip(shares, quarters, strict=True)]
            return sums, shares, sum(of_quarters) / len(of_quarters)

        (sums, shares, share), control = reading.with_control(measure)
        fresh, untrained = (None, None) if control is None else control[1:]
        unrotated = [_compute_unrotated_r2(capture.layers[index], capture.ordinary_T) for index in rotations]
        equal = sum(2 * len(rotation.fastest) / rotation.channels for rotation in rotations.values()) / len(rotations)
        low, high = bootstrap_ratio(
            torch.stack([products_NF[:, pairs].sum(1) for (products_NF, _), pairs in zip(sums, quarters, strict=True)]),
            torch.stack([squares_N for _, squares_N in sums]),
        )
        shown, interval = format_estimate(share, low, high)
        verdict = (
            f"{_name_fastest([*rotations.values()])} {shown} of the logits' variance ({interval}; "
            f"{format_percent(equal)} if all channels carried the same{describe_untrained(untrained)})."
        )
        known = [r2 for r2 in unrotated if r2 is not None]
        if known:
            mean = format_percent(sum(known) / len(known))
            verdict += f" q·k without rotation explains {mean} of the logits' variance (R², the mean over layers)."
        return self.make_finding(
            verdict + _describe_layers(read),
            share,
            untrained=untrained,
            unit=SHARE,
            interval=(low, high),
            references=(Reference("equal pairs", equal),),
            table=_make_table([*rotations], shares, unrotated),
            figure=_draw_figure([cast(Tensor, rotation.order_F) for rotation in rotations.values()], shares, fresh),
            details={"layers without rotation": still} if still != "none" else {},
        )


def _make_table(layers: Sequence[int], shares: Sequence[Tensor], unrotated: Sequence[float | None]) -> Table:
    """Return the shares of each layer; the last is of channels that do not rotate, a missing pair an empty cell."""
    most, rows = max(map(len, shares)) - 1, []
    for index, shares_F, r2 in zip(layers, shares, unrotated, strict=True):
        *pairs, rest = shares_F.tolist()
        rows.append((index + 1, r2, rest, *pairs, *[None] * (most - len(pairs))))
    names = [f"pair {number}" for number in range(most)]
    return Table.of(("layer", "unrotated q·k", "dimensions not rotated", *names), rows)


def _draw_figure(orders: Sequence[Tensor], shares: Sequence[Tensor], fresh: Sequence[Tensor] | None) -> Figure:
    """Draw the mean share of the pairs, the fastest first, over the layers that have so many."""
    means = []
    for known in (shares, fresh or ()):
        ordered = [shares_F[order_F] for shares_F, order_F in zip(known, orders, strict=bool(known))]
        means.append(pad_sequence(ordered, batch_first=True, padding_value=torch.nan).nanmean(0) if ordered else None)
    return draw_columns(
        "bars",
        range(max(map(len, orders))),
        {"mean over layers": means[0]},
        title="What each pair of channels adds to the logits",
        main="mean over layers",
        points={"untrained": means[1]},
        xlabel="pair of channels (0: fastest)",
        ylabel="share of logit variance",
    )


def _name_fastest(rotations: Sequence[Rotation]) -> str:
    """Return the subject of the verdict: the fastest quarter of the pairs, or their number where four divides none."""
    counts = {(len(rotation.fastest), rotation.width // 2) for rotation in rotations}
    (number, count), *others = counts
    if others or count % 4 == 0:
        return "The fastest quarter of the rotated pairs carries"
    if count == 1:
        return "The one rotated pair carries"
    return f"The fastest of {count} rotated pairs carries" if number == 1 else f"The {number} fastest of {count} carry"


def _describe_layers(read: Mapping[int, Rotation]) -> str:
    """Say which layers rotate nothing or are left out, and in which some pairs stand still; empty where all turn."""
    nothing = [str(index + 1) for index, rotation in read.items() if rotation.turns_nothing]
    left_out = [
        str(index + 1) for index, rotation in read.items() if rotation.order_F is None and not rotation.turns_nothing
    ]
    sentence = ""
    if nothing:
        which, verb = ("Layer", "rotates") if len(nothing) == 1 else ("Layers", "rotate")
        sentence = f" {which} {join_words(nothing)} {verb} nothing."
    if left_out:
        which, verb, they_are = ("Layer", "does", "it is") if len(left_out) == 1 else ("Layers", "do", "they are")
        sentence += f" {which} {join_words(left_out)} {verb} not rotate each pair of channels at one speed; "
        sentence += f"{they_are} left out."
    layers: dict[tuple[int, int], list[str]] = {}
    for index, rotation in read.items():
        if rotation.order_F is not None and rotation.resting:
            layers.setdefault((rotation.resting, len(rotation.order_F)), []).append(str(index + 1))
    return sentence + "".join(
        f" In layer{'s' if len(numbers) > 1 else ''} {join_words(numbers)}, {resting} of {count} rotated pairs "
        f"{'stand' if resting > 1 else 'stands'} still: they see no position."
        for (resting, count), numbers in layers.items()
    )


def _compute_pair_sums(
    rotation: Rotation, layer: Layer, ordinary_T: Bool[Tensor, " T"]
) -> tuple[Float[Tensor, "N F"], Float[Tensor, " N"]]:
    """Compute Σ product · logit of each rotating pair, and Σ logit², text by text, over ordinary tokens.

    The products are s q_f·k_f, the logits centred over keys. The last of the F columns belongs to the channels that do
    not rotate, so that F is the number of pairs plus 1. In float64.
    """
    products, squares = [], []
    for _, computed in layer.replay_all():
        included = computed.mark_ordinary_pairs(ordinary_T)
        logits = centre_logits(computed.logits_BHST, included)
        # Σ_ij q_i k_j L_ij = Σ_i q_i (L k)_i, channel by channel, so that no product of two tokens is stored.
        products.append(
            (layer.scale * (computed.q_BHSK.double() * (logits @ computed.k_BHTK).double()).sum((1, 2))).cpu()
        )
        squares.append(logits.double().square().sum((1, 2, 3)).cpu())
    products_NK = torch.cat(products)
    rotated = products_NK[:, rotation.start : rotation.start + rotation.width]
    pairs_NF = rotated.unflatten(1, (-1, 2)).sum(-1) if rotation.interleaved else rotated.unflatten(1, (2, -1)).sum(1)
    rest_N1 = (products_NK.sum(1) - rotated.sum(1))[:, None]
    return torch.cat([pairs_NF, rest_N1], dim=1), torch.cat(squares)


def _compute_unrotated_r2(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> float | None:
    """Return R² of the logits, centred over keys, on q·k without rotation; None where the angles cannot be set to 0."""
    unrotated_layer = _remove_rotation(layer)
    if unrotated_layer is None:
        return None
    covariance = variance = products_variance = 0.0
    for rows, computed in layer.replay_all():
        included = computed.mark_ordinary_pairs(ordinary_T)
        logits = centre_logits(computed.logits_BHST, included).double()
        unrotated = unrotated_layer.replay(layer.inputs_NTD[rows])
        products = unrotated.q_BHSK.double() @ unrotated.k_BHTK.double().transpose(-1, -2)
        products = centre_logits(products, included)
        covariance += float((products * logits).sum())
        variance += float(logits.square().sum())
        products_variance += float(products.square().sum())
    return covariance**2 / max(variance * products_variance, 1e-30)
