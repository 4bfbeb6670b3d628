"""Relative schemes: what attention adds for a distance, whatever the words."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import chance_line, mark, percent, percent_range, reference_untrained
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import ATTENTION, WINDOWS, Measure
from clockhands.inspection.reading.layer import Layer
from clockhands.inspection.reading.logit_split import Split, split_batches
from clockhands.inspection.reading.reading import Reading
from clockhands.inspection.reading.term_groups import compute_group_interval, sum_groups
from clockhands.shapes import Float, Tensor

RELATIVE = {"rotary", "alibi", "buckets", "disentangled", "transformer-xl"}
GROUP = "distance (kernel and bias)"
LEAST = 1e-6
"""Shares below this are rounding."""
FARTHEST = 64
"""The largest offset in the table, in tokens either way."""


class DistanceKernel(Measure):
    """The distance curve of every head, and its share of the logits by layer."""

    name = "kernel"
    question = "What does distance alone do to attention?"
    references = ("distances shuffled", "untrained")
    method = (
        "The constant part of the queries against the constant part of the keys, plus what the layer adds for a "
        "distance: exactly a function of i−j in a relative scheme (for rotation it is s μ_q·R(j−i)μ_k, for ALiBi the "
        "slope, for T5 the bucket's bias). Drawn per head as logits, less each curve's mean; 'share' is its part of "
        "the variance of the logits. Interval: texts resampled. Distances shuffled: each head's curve with its "
        "distances in another order, 200 times, the largest share of any layer each time; distance is said to decide "
        "something where the interval lies above 97.5 % of those. Untrained: fresh weights."
    )
    source = "Su et al. 2021; Press et al. 2022; Raffel et al. 2020, section 2.1"
    group = ATTENTION
    rests_on = WINDOWS
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        subject, splits = reading.subject, reading.splits
        if subject.mechanisms and not RELATIVE & set(subject.mechanisms):
            return self.skip(f"Its attention adds nothing for a distance. {subject.mechanism_sentence}")
        share = _shares(splits)
        fresh = _shares(reading.control.splits) if reading.control else None
        best = max(range(len(share)), key=share.__getitem__)
        curves = [distance_curve(layer) for layer in reading.capture.layers]
        low, high = compute_group_interval(splits[best], GROUP)
        # the layer is chosen as the largest of all, and so is that of every shuffle
        shuffled_n = torch.stack([shuffled_shares(c, s) for (c, _), s in zip(curves, splits, strict=True)]).amax(0)
        floor, ceiling = compute_central_range(shuffled_n)
        beyond = low > max(ceiling, LEAST)
        untrained = f"; untrained {percent(fresh[best])}" if fresh else ""
        numbers = (
            f"(95 % interval {percent_range(low, high)}; distances shuffled {percent_range(floor, ceiling)}{untrained})"
        )
        return self.finding(
            _describe(best, share[best], splits[best], numbers, beyond),
            share[best],
            interval=(low, high),
            references=(
                Reference("distances shuffled", float(shuffled_n.mean()), (floor, ceiling)),
                *reference_untrained(fresh[best] if fresh else None),
            ),
            light="info",
            table=_table([found for found, _ in curves], reading.capture.length - 1),
            figure=_figure(curves[best][0], best, share, fresh),
            details={
                "share": share,
                "spread_along_diagonals": max(spread for _, spread in curves),
                "beyond": beyond,
            },
        )


def _shares(splits: Sequence[Split]) -> list[float]:
    return [sum_groups(split.layer_shares())[GROUP] for split in splits]


def _describe(layer: int, share: float, split: Split, numbers: str, beyond: bool) -> str:
    """Say how much distance decides in the layer where it decides most; ``beyond``: more than shuffled distances do."""
    if not beyond:
        return (
            f"No effect of distance alone was found: it accounts for at most {percent(share)} of the variance of a "
            f"layer's logits, in layer {layer + 1} {numbers}."
        )
    by_head = [sum_groups(row)[GROUP] for row in split.head_shares()]
    head = max(range(len(by_head)), key=by_head.__getitem__)
    return (
        f"Distance alone accounts for up to {percent(share)} of the variance of a layer's logits, in layer {layer + 1} "
        f"{numbers}; there it accounts for most in head {head} ({percent(max(by_head))})."
    )


def _table(curves: Sequence[Float[Tensor, "H J"]], reach: int) -> Table:
    rows = [
        (layer + 1, head, offset - reach, value)
        for layer, curve_HJ in enumerate(curves)
        for head, line in enumerate(curve_HJ.tolist())
        for offset, value in enumerate(line)
        if value == value and abs(offset - reach) <= FARTHEST
    ]
    return Table.of(("layer", "head", "offset", "logit"), rows)


def distance_curve(layer: Layer) -> tuple[Float[Tensor, "H J"], float]:
    """Mean of the distance term at each offset −(T−1) … T−1, and the largest spread along a diagonal (0: exact).

    Every query's own place is 0 (ALiBi is often stored with another constant per row, which softmax cannot see);
    offsets that the mask forbids are NaN.
    """
    _, batch = next(split_batches(layer))
    term = (batch.compute_term("constant–constant") + batch.compute_term("added, constant"))[0].double().cpu()
    term = term - torch.diagonal(term, dim1=1, dim2=2)[..., None]
    term = term.masked_fill(~batch.real.mask_BHST[0].cpu(), torch.nan)
    length = term.shape[-1]
    diagonals = [torch.diagonal(term, r, dim1=1, dim2=2) for r in range(1 - length, length)]
    spread = max(float((d - d[:, :1]).nan_to_num().abs().max()) for d in diagonals)
    return torch.stack([d.nanmean(-1) for d in diagonals], dim=-1), spread


def shuffled_shares(curve_HJ: Float[Tensor, "H J"], split: Split, draws: int = 200) -> Float[Tensor, " n"]:
    """The share of the logits that the curves would have with their distances in another order, many times."""
    there = ~curve_HJ.isnan().any(0)
    curve, sums = curve_HJ[:, there].double(), split.offsets_HJ[:, there]
    generator = torch.Generator().manual_seed(0)
    orders = (torch.randperm(curve.shape[1], generator=generator) for _ in range(draws))
    total = float(split.var_NH.sum().clamp_min(1e-30))
    return torch.stack([(curve[:, order] * sums).sum() for order in orders]) / total


def _figure(found: Tensor, layer: int, share: list[float], fresh: list[float] | None) -> Figure:
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
        bars.append(mark("points", names, torch.tensor(fresh), label="untrained", emphasis="reference"))
    return Figure(
        (
            Panel(
                (*lines[:12], chance_line(0.0, "")),
                title=f"Layer {layer + 1}",
                xlabel="key position − query position",
                ylabel="logit",
            ),
            Panel(tuple(bars), title="Share of the logits", xlabel="layer", ylabel="share"),
        ),
        columns=2,
    )
