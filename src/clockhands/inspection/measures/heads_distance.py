"""How far do the heads attend?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Finding, Panel, Reference, Table, join_words
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.intervals import compute_central_range, draw_texts
from clockhands.inspection.measures.measure import LAYERS_HEADING, MASKED_WINDOWS, Measure
from clockhands.inspection.number_format import format_percent
from clockhands.inspection.reading.head_statistics import MAX_OFFSET, HeadStatistics
from clockhands.inspection.reading.reading import Reading
from clockhands.shapes import Float, Tensor

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
        uniform = layers[nearest].uniform_distance
        low, high = _bootstrap_median(layers[nearest].distance_NH)
        return self.make_finding(
            f"Layer {nearest + 1} attends nearest, at a median over heads of {medians[nearest]:.1f} tokens (95 % "
            f"interval {low:.1f} to {high:.1f}); uniform attention there would be {uniform:.1f} tokens far. "
            f"{_describe_near_layers(medians, [layer.uniform_distance for layer in layers])}",
            medians[nearest],
            interval=(low, high),
            unit="tokens",
            references=(Reference("uniform attention", uniform),),
            light="info",
            table=Table.of(
                ("layer", "head", "mean distance", "uniform"),
                [
                    (index + 1, head, distance, layer.uniform_distance)
                    for index, layer in enumerate(layers)
                    for head, distance in enumerate(layer.distance_H, 1)
                ],
            ),
            figure=_draw_figure(layers),
        )


def _bootstrap_median(distance_NH: Float[Tensor, "N H"]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the median over heads of the mean over texts."""
    return compute_central_range(distance_NH[draw_texts(len(distance_NH))].mean(1).quantile(0.5, dim=-1))


def _describe_near_layers(medians: Sequence[float], uniform_distances: Sequence[float]) -> str:
    """Name the layers that attend less than half as far as uniform attention under their own mask would."""
    pairs = zip(medians, uniform_distances, strict=True)
    near = [str(index + 1) for index, (median, uniform) in enumerate(pairs) if median < NEAR * uniform]
    if not near:
        return "No layer attends less than half as far as uniform attention."
    layers = f"{'Layer' if len(near) == 1 else 'Layers'} {join_words(near)}"
    return f"{layers} {'attends' if len(near) == 1 else 'attend'} less than half as far as uniform attention."


def _draw_figure(layers: Sequence[HeadStatistics]) -> Figure:
    """Draw attention by offset in some layers: the mean over heads, the most local head, and uniform attention.

    The most local head is the one with the most attention at a single offset that at least half of the queries have.
    """
    step = max(1, -(-len(layers) // MOST_PANELS))
    panels = []
    for index in range(0, len(layers), step):
        layer = layers[index]
        allowed = layer.uniform_by_offset_J > 0  # by this layer's own mask, which may be a sliding window
        offsets = torch.arange(-MAX_OFFSET, MAX_OFFSET + 1)[allowed]
        most_local = int(layer.favourite_share_H.argmax())
        most = format_percent(float(layer.favourite_share_H[most_local]))
        panels.append(
            Panel(
                (
                    make_mark(
                        "line",
                        offsets,
                        layer.attention_by_offset_HJ.mean(0)[allowed],
                        label="mean over heads",
                        emphasis="main",
                    ),
                    make_mark(
                        "line", offsets, layer.attention_by_offset_HJ[most_local][allowed], label="most local head"
                    ),
                    make_mark(
                        "line", offsets, layer.uniform_by_offset_J[allowed], label="uniform", emphasis="reference"
                    ),
                ),
                title=f"Layer {index + 1}, most local head {most_local + 1} ({most})",
                xlabel="key position − query position",
                ylabel="share of attention",
            )
        )
    return Figure(tuple(panels), columns=2, title="Attention by distance of the key")
