"""Relative schemes: what attention adds for a distance, whatever the words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import level, mark, percent, percent_range, skip, untrained_as
from clockhands.inspection.estimators.intervals import bootstrap_layers, interval
from clockhands.inspection.measures.decomposed import group_interval, grouped
from clockhands.inspection.reading.capture import Capture
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import Split, centred, parts
from clockhands.inspection.subject.subject import Subject
from clockhands.model.attention import AttentionContext
from clockhands.schemes import NoPosition
from clockhands.shapes import Bool, Float, Tensor

RELATIVE = {"rotary", "alibi", "buckets", "disentangled", "transformer-xl"}
GROUP = "distance (kernel and bias)"
LEAST = 1e-6
"""Shares below this are rounding."""
KERNEL = "What does distance alone do to attention?"
KERNEL_METHOD = (
    "The constant part of the queries against the constant part of the keys, plus what the layer adds for a "
    "distance: exactly a function of i−j in a relative scheme (for rotation it is s μ_q·R(j−i)μ_k, for ALiBi the "
    "slope, for T5 the bucket's bias). Drawn per head as logits, less each curve's mean; 'share' is its part of "
    "the variance of the logits. Interval: texts resampled. Distances shuffled: each head's curve with its distances "
    "in another order, 200 times; distance is said to decide something where the interval lies above 95 % of those. "
    "Untrained: fresh weights."
)
FREQUENCY = "Which of the rotation's hands does attention use?"
FREQUENCY_METHOD = (
    "The logit is a sum over the pairs of dimensions that turn together: share of pair f = cov(s q_f·k_f, "
    "logit)/var(logit), logits centred over keys, pairs ordered from the fastest hand. 'Unrotated' is the same "
    "for q·k as it would be without rotation. Interval: texts resampled. Untrained: fresh weights."
)


def curve(layer: Layer) -> tuple[Float[Tensor, "H R"], float]:
    """Mean of the distance term at each offset −(T−1) … T−1, and the largest spread along a diagonal (0: exact).

    Every query's own place is 0 (ALiBi is often stored with another constant per row, which softmax cannot see);
    offsets that the mask forbids are NaN.
    """
    _, batch = next(parts(layer))
    term = (batch.term("constant–constant") + batch.term("added, constant"))[0].double().cpu()
    term = term - torch.diagonal(term, dim1=1, dim2=2)[..., None]
    term = term.masked_fill(~batch.real.allowed_BHST[0].cpu(), torch.nan)
    length = term.shape[-1]
    diagonals = [torch.diagonal(term, r, dim1=1, dim2=2) for r in range(1 - length, length)]
    spread = max(float((d - d[:, :1]).nan_to_num().abs().max()) for d in diagonals)
    return torch.stack([d.nanmean(-1) for d in diagonals], dim=-1), spread


def kernel(subject: Subject, capture: Capture, splits: Sequence[Split], control: Sequence[Split] | None) -> Finding:
    """The distance curve of every head, and its share of the logits by layer."""
    if subject.mechanisms and not RELATIVE & set(subject.mechanisms):
        return skip("kernel", KERNEL, f"Its attention adds nothing for a distance. {subject.mechanism}")
    share = [grouped(split.layer())[GROUP] for split in splits]
    fresh = [grouped(split.layer())[GROUP] for split in control] if control else None
    best = max(range(len(share)), key=share.__getitem__)
    curves = [curve(layer) for layer in capture.layers]
    by_head = [grouped(row)[GROUP] for row in splits[best].heads()]
    low, high = group_interval(splits[best], GROUP)
    floor, ceiling = interval(shuffled_shares(curves[best][0], splits[best]))
    beyond = low > max(ceiling, LEAST)
    untrained = f"; untrained {percent(fresh[best])}" if fresh else ""
    numbers = (
        f"(95 % interval {percent_range(low, high)}; distances shuffled {percent_range(floor, ceiling)}{untrained})"
    )
    head = max(range(len(by_head)), key=by_head.__getitem__)
    verdict = (
        f"Distance alone decides up to {percent(share[best])} of a layer's logits, in layer {best + 1} {numbers}; "
        f"there it decides most in head {head} ({percent(max(by_head))})."
        if beyond
        else f"No effect of distance alone was found: it decides at most {percent(share[best])} of a layer's logits, "
        f"in layer {best + 1} {numbers}."
    )
    reach = capture.length - 1
    rows = [
        (layer + 1, head, offset - reach, value)
        for layer, (found, _) in enumerate(curves)
        for head, line in enumerate(found.tolist())
        for offset, value in enumerate(line)
        if value == value and abs(offset - reach) <= 64
    ]
    return Finding(
        name="kernel",
        question=KERNEL,
        verdict=verdict,
        value=share[best],
        interval=(low, high),
        references=(
            Reference("distances shuffled", 0.0, (floor, ceiling)),
            *untrained_as(fresh[best] if fresh else None),
        ),
        light="info",
        table=Table.of(("layer", "head", "offset", "logit"), rows),
        figure=_kernel_figure(curves[best][0], best, share, fresh),
        method=KERNEL_METHOD,
        source="Su et al. 2021; Press et al. 2022; Raffel et al. 2020, section 2.1",
        details={
            "share": share,
            "spread_along_diagonals": max(spread for _, spread in curves),
            "beyond": beyond,
        },
    )


def shuffled_shares(curve_HR: Float[Tensor, "H R"], split: Split, draws: int = 200) -> Float[Tensor, " n"]:
    """The share of the logits that the curves would have with their distances in another order, many times."""
    there = ~curve_HR.isnan().any(0)
    curve, sums = curve_HR[:, there].double(), split.offsets_HR[:, there]
    generator = torch.Generator().manual_seed(0)
    orders = (torch.randperm(curve.shape[1], generator=generator) for _ in range(draws))
    total = float(split.var_NH.sum().clamp_min(1e-30))
    return torch.stack([(curve[:, order] * sums).sum() for order in orders]) / total


def _kernel_figure(found: Tensor, layer: int, share: list[float], fresh: list[float] | None) -> Figure:
    reach = (found.shape[-1] - 1) // 2
    shown = slice(max(0, reach - 48), reach + 49)
    x = torch.arange(-reach, reach + 1)[shown]
    kept = ~found[:, shown].isnan().all(0)
    lines = [
        mark("line", x[kept], (row - row.nanmean())[shown][kept], label=f"head {head}")
        for head, row in enumerate(found)
    ]
    names = [str(index + 1) for index in range(len(share))]
    bars = [mark("bars", names, torch.tensor(share), label="this model", emphasis="main")]
    if fresh is not None:
        bars.append(mark("points", names, torch.tensor(fresh), label="untrained", emphasis="null"))
    return Figure(
        (
            Panel(
                (*lines[:12], level(0.0, "")),
                title=f"Layer {layer + 1}",
                xlabel="key position − query position",
                ylabel="logit",
            ),
            Panel(tuple(bars), title="Share of the logits", xlabel="layer", ylabel="share"),
        ),
        columns=2,
    )


def frequencies(subject: Subject, capture: Capture, control: Capture | None) -> Finding:
    """Shares of the pairs that rotate together, and of q·k without rotation."""
    if "rotary" not in subject.mechanisms:
        return skip("kernel.frequencies", FREQUENCY, f"No rotation was found. {subject.mechanism}")
    if subject.unknown:
        why = f"Which dimensions a {subject.kind} rotates together is not recorded here."
        return skip("kernel.frequencies", FREQUENCY, why)
    sums = [frequency_sums(subject, layer, capture.ordinary_T) for layer in capture.layers]
    shares = torch.stack([shares_of(*each) for each in sums])
    mean = shares.mean(0)
    fresh = None
    if control is not None:
        fresh = torch.stack([frequency_shares(subject, layer, control.ordinary_T) for layer in control.layers]).mean(0)
    plain = [unrotated_share(layer, capture.ordinary_T) for layer in capture.layers]
    told = [value for value in plain if value is not None]
    pairs = shares.shape[1] - 1
    quarter = max(1, pairs // 4)
    fastest = float(mean[:quarter].sum())
    low, high = bootstrap_layers(
        torch.stack([products_NF[:, :quarter].sum(1) for products_NF, _ in sums]),
        torch.stack([variance_N for _, variance_N in sums]),
    )
    rotated = f" Without rotation q·k would explain {percent(sum(told) / len(told))} of it." if told else ""
    start = float(fresh[:quarter].sum()) if fresh is not None else None
    untrained = f"; untrained {percent(start)}" if start is not None else ""
    marks = [mark("bars", range(pairs), mean[:pairs], label="mean over layers", emphasis="main")]
    if fresh is not None:
        marks.append(mark("points", range(pairs), fresh[:pairs], label="untrained", emphasis="null"))
    return Finding(
        name="kernel.frequencies",
        question=FREQUENCY,
        verdict=(
            f"The fastest quarter of the rotated pairs carries {percent(fastest)} of the logits' variance (95 % "
            f"interval {percent_range(low, high)}; a quarter of the pairs {percent(quarter / pairs)}{untrained})."
            f"{rotated}"
        ),
        value=fastest,
        interval=(low, high),
        references=(Reference("equal pairs", quarter / pairs), *untrained_as(start)),
        light="info",
        table=Table.of(
            ("layer", "unrotated q·k", "dimensions not rotated", *(f"pair {f}" for f in range(pairs))),
            [(index + 1, plain[index], row[-1], *row[:-1]) for index, row in enumerate(shares)],
        ),
        figure=Figure(
            (Panel(tuple(marks), xlabel="pair of dimensions (0: fastest)", ylabel="share of logit variance"),)
        ),
        method=FREQUENCY_METHOD,
        source="Su et al. 2021; shares after Barbero et al. 2024, who use norms",
    )


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
        counted = (
            call.allowed_BHST
            & ordinary_T.to(call.allowed_BHST.device)[:, None]
            & ordinary_T.to(call.allowed_BHST.device)
        )
        logits = centred(call.logits_BHST, counted)
        products.append((layer.scale * (call.q_BHSK.double() * (logits @ call.k_BHTK).double()).sum((1, 2))).cpu())
        variances.append(logits.double().square().sum((1, 2, 3)).cpu())
    whole_NK = torch.cat(products)
    rotated = rotated_width(subject, whole_NK.shape[1])
    turning = whole_NK[:, :rotated]
    pairs = turning.unflatten(1, (-1, 2)).sum(-1) if subject.interleaved else turning.unflatten(1, (2, -1)).sum(1)
    return torch.cat([pairs, whole_NK[:, rotated:].sum(1, keepdim=True)], dim=1), torch.cat(variances)


def rotated_width(subject: Subject, width: int) -> int:
    """How many dimensions of a head rotate."""
    rotary = getattr(getattr(subject.model, "config", None), "rotary_dim", None)
    if isinstance(rotary, int):
        return rotary
    for name, buffer in subject.model.named_buffers():
        if name.endswith("inv_freq"):
            return 2 * len(buffer)
    return width


def unrotated_share(layer: Layer, ordinary_T: Bool[Tensor, " T"]) -> float | None:
    """cov(s q·k without rotation, logit)/var(logit); None where the angles do not come as an argument."""
    still = _still(layer)
    if still is None:
        return None
    covariance = variance = 0.0
    for rows, call in layer.calls():
        ordinary = ordinary_T.to(call.allowed_BHST.device)
        logits = centred(call.logits_BHST, call.allowed_BHST & ordinary[:, None] & ordinary).double()
        other = still.replay(layer.inputs_NTD[rows])
        products = layer.scale * (other.q_BHSK @ other.k_BHTK.transpose(-1, -2)).double()
        covariance += float((products * logits).sum())
        variance += float(logits.square().sum())
    return covariance / max(variance, 1e-30)


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
