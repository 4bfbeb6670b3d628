"""How far the heads look."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table
from clockhands.inspection.drawing import join_words, mark, percent
from clockhands.inspection.estimators.intervals import compute_central_range
from clockhands.inspection.measures.measure import LAYERS, SIGHT, Measure
from clockhands.inspection.reading.head_statistics import REACH, HeadStatistics
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor


class HeadsDistance(Measure):
    """How far the heads of every layer look, against uniform attention."""

    name = "heads.distance"
    question = "How far do the heads look?"
    references = ("uniform attention",)
    method = (
        "The mean of |i−j| under a head's attention, over ordinary tokens; queries from the middle half of the "
        "window, so that both sides are open (all but the first four where keys lie on one side only). Interval: texts "
        "resampled. Uniform attention: the same mean over all keys that a query of that layer may see."
    )
    source = "Clark et al. 2019; attention distance as in Dosovitskiy et al. 2021"
    group = LAYERS
    rests_on = SIGHT
    reads_attention = True

    def run(self, reading: Reading) -> Finding:
        found = reading.heads
        middles = [float(layer.distance_H.quantile(0.5)) for layer in found]
        nearest = min(range(len(middles)), key=middles.__getitem__)
        uniform = found[nearest].uniform_distance
        near = _reaches(middles, [layer.uniform_distance for layer in found])
        return self.finding(
            f"Layer {nearest + 1} looks nearest, at a median over heads of {middles[nearest]:.1f} tokens; uniform "
            f"attention there would look {uniform:.1f} tokens far. {near}",
            middles[nearest],
            interval=_median_interval(found[nearest].distance_NH),
            unit="tokens",
            references=(Reference("uniform attention", uniform),),
            light="info",
            table=Table.of(
                ("layer", "head", "mean distance", "uniform"),
                [
                    (index + 1, head, value, layer.uniform_distance)
                    for index, layer in enumerate(found)
                    for head, value in enumerate(layer.distance_H)
                ],
            ),
            figure=_profiles(found),
        )


def _median_interval(distance_NH: Float[Tensor, "N H"], draws: int = 400) -> tuple[float, float]:
    """Return the 95 % interval of the median over heads when the texts are drawn again with replacement."""
    count = len(distance_NH)
    picks = torch.randint(count, (draws, count), generator=torch.Generator().manual_seed(0))
    return compute_central_range(distance_NH[picks].mean(1).quantile(0.5, dim=-1))


def _reaches(middles: Sequence[float], uniform: Sequence[float]) -> str:
    """Name the layers that look less than half as far as uniform attention under their own mask would."""
    pairs = zip(middles, uniform, strict=True)
    near = [str(index + 1) for index, (middle, far) in enumerate(pairs) if middle < 0.5 * far]
    if not near:
        return "No layer looks less than half as far."
    return f"Less than half as far {'looks layer' if len(near) == 1 else 'look layers'} {join_words(near)}."


def _profiles(found: Sequence[HeadStatistics]) -> Figure:
    """Attention by offset: the mean over heads of a few layers, and uniform attention."""
    step = max(1, -(-len(found) // 6))
    there = found[0].uniform_offsets_J > 0
    x = torch.arange(-REACH, REACH + 1)[there]
    panels = []
    for index in range(0, len(found), step):
        layer = found[index]
        best = int(layer.offsets_HJ.max(-1).values.argmax())
        panels.append(
            Panel(
                (
                    mark("line", x, layer.offsets_HJ.mean(0)[there], label="mean over heads", emphasis="main"),
                    mark("line", x, layer.offsets_HJ[best][there], label="most local head"),
                    mark("line", x, layer.uniform_offsets_J[there], label="uniform", emphasis="reference"),
                ),
                title=f"Layer {index + 1}, most local head {best} ({percent(float(layer.offsets_HJ[best].max()))})",
                xlabel="key position − query position",
                ylabel="attention",
            )
        )
    return Figure(tuple(panels), columns=2)
