"""Rotary schemes: which frequencies of the rotation attention uses."""

from __future__ import annotations

from dataclasses import replace

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import mark, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import bootstrap_layer_mean
from clockhands.inspection.measures.measure import ATTENTION, WINDOWS, Measure
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import centre_logits
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.subject.subject import Subject
from clockhands.model.attention import AttentionContext
from clockhands.schemes import NoPosition, RoPE
from clockhands.shapes import Bool, Float, Tensor


class RotationFrequencies(Measure):
    """Shares of the pairs of dimensions that rotate together, and of q·k without rotation."""

    name = "kernel.frequencies"
    question = "Which of the rotation's hands does attention use?"
    references = ("equal pairs", "untrained")
    method = (
        "The logit is a sum over the pairs of dimensions that turn together: share of pair f = cov(s q_f·k_f, "
        "logit)/var(logit), logits centred over keys, pairs ordered from the fastest hand. 'Unrotated' is R² "
        "of the logits on q·k as it would be without rotation. Interval: texts resampled. Untrained: fresh weights."
    )
    source = "Su et al. 2021; shares after Barbero et al. 2024, who use norms"
    group = ATTENTION
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        subject, capture = reading.subject, reading.capture
        if "rotary" not in subject.mechanisms:
            return self.skip(f"No rotation was found. {subject.mechanism_sentence}")
        if subject.unlisted:
            return self.skip(f"Which dimensions a {subject.class_name} rotates together is not recorded here.")
        sums = [frequency_sums(subject, layer, capture.ordinary_T) for layer in capture.layers]
        shares_LF = torch.stack([shares_of(*layer) for layer in sums])
        fresh_F = None if reading.control is None else _mean_shares(subject, reading.control)
        plain = [unrotated_share(layer, capture.ordinary_T) for layer in capture.layers]
        pairs = shares_LF.shape[1] - 1
        quarter = max(1, pairs // 4)
        fastest = float(shares_LF.mean(0)[:quarter].sum())
        start = float(fresh_F[:quarter].sum()) if fresh_F is not None else None
        low, high = _quarter_interval(sums, quarter)
        untrained = f"; untrained {percent(start)}" if start is not None else ""
        return self.finding(
            f"The fastest quarter of the rotated pairs carries {percent(fastest)} of the logits' variance (95 % "
            f"interval {percent_range(low, high)}; a quarter of the pairs {percent(quarter / pairs)}{untrained})."
            f"{_without_rotation(plain)}",
            fastest,
            interval=(low, high),
            references=(Reference("equal pairs", quarter / pairs), *reference_untrained(start)),
            light="info",
            table=Table.of(
                ("layer", "unrotated q·k", "dimensions not rotated", *(f"pair {f}" for f in range(pairs))),
                [(index + 1, plain[index], row[-1], *row[:-1]) for index, row in enumerate(shares_LF)],
            ),
            figure=_figure(shares_LF.mean(0), fresh_F, pairs),
        )


def _mean_shares(subject: Subject, control: Reading) -> Float[Tensor, " F"]:
    """Return the shares in the untrained model, the mean over its layers."""
    recorded = control.capture
    return torch.stack([frequency_shares(subject, layer, recorded.ordinary_T) for layer in recorded.layers]).mean(0)


def _quarter_interval(sums: list[tuple[Tensor, Tensor]], quarter: int) -> tuple[float, float]:
    """Return the 95 % interval of the share of the fastest ``quarter`` of the pairs, texts resampled."""
    return bootstrap_layer_mean(
        torch.stack([products_NF[:, :quarter].sum(1) for products_NF, _ in sums]),
        torch.stack([variance_N for _, variance_N in sums]),
    )


def _without_rotation(plain: list[float | None]) -> str:
    known = [value for value in plain if value is not None]
    if not known:
        return ""
    return f" q·k without rotation explains {percent(sum(known) / len(known))} of it (R², the mean over layers)."


def _figure(mean_F: Tensor, fresh_F: Tensor | None, pairs: int) -> Figure:
    marks = [mark("bars", range(pairs), mean_F[:pairs], label="mean over layers", emphasis="main")]
    if fresh_F is not None:
        marks.append(mark("points", range(pairs), fresh_F[:pairs], label="untrained", emphasis="reference"))
    return Figure((Panel(tuple(marks), xlabel="pair of dimensions (0: fastest)", ylabel="share of logit variance"),))


def frequency_shares(subject: Subject, layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> Float[Tensor, " F"]:
    """One share per rotating pair, and last that of the dimensions that do not rotate; the sum is 1 less any bias."""
    return shares_of(*frequency_sums(subject, layer, ordinary_T))


def shares_of(products_NF: Float[Tensor, "N F"], variance_N: Float[Tensor, " N"]) -> Float[Tensor, " F"]:
    """Shares over all texts."""
    return products_NF.sum(0) / variance_N.sum().clamp_min(1e-30)


def frequency_sums(
    subject: Subject, layer: Layer, ordinary_T: Bool[Tensor, " T"]
) -> tuple[Float[Tensor, "N F"], Float[Tensor, " N"]]:
    """Σ product · logit of each rotating pair (last, of what does not rotate), and Σ logit², text by text."""
    products, variances = [], []
    for _, call in layer.calls():
        counted = call.mark_counted(ordinary_T)
        logits = centre_logits(call.logits_BHST, counted)
        products.append((layer.scale * (call.q_BHSK.double() * (logits @ call.k_BHTK).double()).sum((1, 2))).cpu())
        variances.append(logits.double().square().sum((1, 2, 3)).cpu())
    whole_NK = torch.cat(products)
    rotated = rotated_width(subject, layer, whole_NK.shape[1])
    turning = whole_NK[:, :rotated]
    pairs = turning.unflatten(1, (-1, 2)).sum(-1) if subject.interleaved else turning.unflatten(1, (2, -1)).sum(1)
    return torch.cat([pairs, whole_NK[:, rotated:].sum(1, keepdim=True)], dim=1), torch.cat(variances)


def rotated_width(subject: Subject, layer: Layer, width: int) -> int:
    """Return how many of the ``width`` channels of a head rotate: those that partial rotary leaves alone come last."""
    if layer.scheme is not None:
        return layer.scheme.channels if isinstance(layer.scheme, RoPE) else width
    rotary = getattr(getattr(subject.model, "config", None), "rotary_dim", None)
    if isinstance(rotary, int):
        return rotary
    for name, buffer in subject.model.named_buffers():
        if name.endswith("inv_freq"):
            return 2 * len(buffer)
    return width


def unrotated_share(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> float | None:
    """Return R² of the logits, centred over keys, on q·k without rotation; None where no argument holds the angles."""
    still = _still(layer)
    if still is None:
        return None
    covariance = variance = products_variance = 0.0
    for rows, call in layer.calls():
        counted = call.mark_counted(ordinary_T)
        logits = centre_logits(call.logits_BHST, counted).double()
        other = still.replay(layer.inputs_NTD[rows])
        products = other.q_BHSK.double() @ other.k_BHTK.double().transpose(-1, -2)
        products = centre_logits(products, counted)
        covariance += float((products * logits).sum())
        variance += float(logits.square().sum())
        products_variance += float(products.square().sum())
    return covariance**2 / max(variance * products_variance, 1e-30)


def _still(layer: Layer) -> Layer | None:
    """The same layer with all angles zero: our own without its scheme, others by the angles that they are given."""
    looks = [arg for arg in layer.args if isinstance(arg, AttentionContext)]
    if looks:
        args = tuple(replace(arg, scheme=NoPosition()) if arg is looks[0] else arg for arg in layer.args)
        return replace(layer, args=args)
    angles = layer.kwargs.get("position_embeddings")
    if not isinstance(angles, tuple) or len(angles) != 2:
        return None
    cos, sin = angles
    zero = ((cos**2 + sin**2).sqrt(), torch.zeros_like(sin))
    return replace(layer, kwargs={**layer.kwargs, "position_embeddings": zero})
