"""Which frequencies of the rotation does attention use?"""

from __future__ import annotations

from dataclasses import replace

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.intervals import bootstrap_layer_mean
from clockhands.inspection.measures.measure import ATTENTION_HEADING, WINDOWS, Measure, make_untrained_reference
from clockhands.inspection.number_format import describe_untrained, format_percent, format_percent_range
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import centre_logits
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.model.attention import AttentionContext
from clockhands.schemes import Composition, NoPosition, RoPE
from clockhands.shapes import Bool, Float, Tensor


class RotationFrequencies(Measure):
    """Shares of the pairs of channels that rotate together, and R² of the logits on q·k without rotation."""

    name = "kernel.frequencies"
    question = "Which frequencies of the rotation does attention use?"
    references = ("equal pairs", "untrained")
    method = (
        "The logit is a sum over the pairs of channels that rotate together: share of pair f = cov(s q_f·k_f, "
        "logit)/var(logit), logits centred over keys, pairs ordered from the fastest. 'Unrotated' is R² of the logits "
        "on q·k as it would be without rotation. Interval: texts resampled. Equal pairs: the share of a quarter of the "
        "pairs if all had the same. Untrained: fresh weights."
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
        if subject.has_unlisted_architecture:
            return self.skip(f"Which channels a {subject.class_name} rotates together is not recorded here.")
        sums = [compute_pair_sums(subject, layer, capture.ordinary_T) for layer in capture.layers]
        shares_LF = torch.stack([compute_pair_shares(*layer_sums) for layer_sums in sums])
        untrained_F = None if reading.control is None else _compute_mean_shares(subject, reading.control)
        unrotated = [compute_unrotated_r2(layer, capture.ordinary_T) for layer in capture.layers]
        pairs = shares_LF.shape[1] - 1
        quarter = max(1, pairs // 4)
        share = float(shares_LF.mean(0)[:quarter].sum())
        untrained = float(untrained_F[:quarter].sum()) if untrained_F is not None else None
        low, high = _bootstrap_quarter(sums, quarter)
        return self.make_finding(
            f"The fastest quarter of the rotated pairs carries {format_percent(share)} of the logits' variance (95 % "
            f"interval {format_percent_range(low, high)}; equal pairs "
            f"{format_percent(quarter / pairs)}{describe_untrained(untrained)}).{_describe_unrotated(unrotated)}",
            share,
            unit=SHARE,
            interval=(low, high),
            references=(Reference("equal pairs", quarter / pairs), *make_untrained_reference(untrained)),
            light="info",
            table=Table.of(
                ("layer", "unrotated q·k", "dimensions not rotated", *(f"pair {pair}" for pair in range(pairs))),
                [(index + 1, unrotated[index], row[-1], *row[:-1]) for index, row in enumerate(shares_LF)],
            ),
            figure=_draw_figure(shares_LF.mean(0), untrained_F, pairs),
        )


def _compute_mean_shares(subject: Subject, control: Reading) -> Float[Tensor, " F"]:
    """Return the shares in the untrained model, the mean over its layers."""
    layers, ordinary_T = control.capture.layers, control.capture.ordinary_T
    return torch.stack([compute_pair_shares(*compute_pair_sums(subject, layer, ordinary_T)) for layer in layers]).mean(
        0
    )


def _bootstrap_quarter(sums: list[tuple[Tensor, Tensor]], quarter: int) -> tuple[float, float]:
    """Return the 95 % interval of the share of the fastest ``quarter`` of the pairs, texts resampled."""
    return bootstrap_layer_mean(
        torch.stack([products_NF[:, :quarter].sum(1) for products_NF, _ in sums]),
        torch.stack([squares_N for _, squares_N in sums]),
    )


def _describe_unrotated(shares: list[float | None]) -> str:
    """Say how much of the logits q·k would explain without rotation; empty where no layer could be run without it."""
    known = [share for share in shares if share is not None]
    if not known:
        return ""
    mean = format_percent(sum(known) / len(known))
    return f" q·k without rotation explains {mean} of the logits' variance (R², the mean over layers)."


def _draw_figure(mean_F: Tensor, untrained_F: Tensor | None, pairs: int) -> Figure:
    """Draw the share of every pair, trained and untrained."""
    marks = [make_mark("bars", range(pairs), mean_F[:pairs], label="mean over layers", emphasis="main")]
    if untrained_F is not None:
        marks.append(make_mark("points", range(pairs), untrained_F[:pairs], label="untrained", emphasis="reference"))
    panel = Panel(tuple(marks), xlabel="pair of channels (0: fastest)", ylabel="share of logit variance")
    return Figure((panel,), title="What each pair of channels adds to the logits")


def compute_pair_shares(products_NF: Float[Tensor, "N F"], squares_N: Float[Tensor, " N"]) -> Float[Tensor, " F"]:
    """Return the shares of the pairs from the sums of ``compute_pair_sums``, over all texts.

    They sum to 1, less the share of a bias where the layer adds one.
    """
    return products_NF.sum(0) / squares_N.sum().clamp_min(1e-30)


def compute_pair_sums(
    subject: Subject, layer: Layer, ordinary_T: Bool[Tensor, " T"]
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
    width = find_rotated_width(subject, layer, products_NK.shape[1])
    rotated = products_NK[:, :width]
    pairs_NF = rotated.unflatten(1, (-1, 2)).sum(-1) if subject.interleaved else rotated.unflatten(1, (2, -1)).sum(1)
    return torch.cat([pairs_NF, products_NK[:, width:].sum(1, keepdim=True)], dim=1), torch.cat(squares)


def find_rotated_width(subject: Subject, layer: Layer, width: int) -> int:
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


def compute_unrotated_r2(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> float | None:
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
