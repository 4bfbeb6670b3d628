"""How much of the hidden state is position?"""

from __future__ import annotations

import torch

from clockhands.findings import SHARE, Figure, Finding, Panel, Table
from clockhands.inspection.drawing import make_mark
from clockhands.inspection.estimators.variance_share import (
    compute_stable_rank,
    estimate_position_share,
    jackknife_position_share,
)
from clockhands.inspection.measures.measure import LAYERS_HEADING, TASK, Measure, make_untrained_reference
from clockhands.inspection.number_format import format_percent, format_percent_range
from clockhands.inspection.reading.capture import FIRST_POSITION_NOTE, Capture
from clockhands.inspection.reading.reading import Reading


class StateShare(Measure):
    """The share of position in the variance of the hidden states of every layer."""

    name = "survival.share"
    question = "How much of the hidden state is position?"
    references = ("untrained",)
    method = (
        "Two-way analysis of variance: h(text, t) = μ + text + pos_t + interaction. The share is (SS_pos − "
        "(T−1)·MS_interaction) / SS_total, from which the part that chance puts into SS_pos is already taken; without "
        "that a model with no position at all would score one over the number of texts. Interval: jackknife over the "
        "texts, Student's t (Tukey 1958). Untrained: fresh weights." + FIRST_POSITION_NOTE
    )
    source = "Song & Zhong 2023, with the bias removed"
    heading = LAYERS_HEADING
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        """Measure the states after every layer; the value is the share after the last."""
        capture = reading.capture
        shares = _estimate_shares(capture)
        ranks = [compute_stable_rank(hidden[:, capture.measured_T]) for hidden in capture.hidden]
        untrained = _estimate_shares(reading.control.capture) if reading.control else None
        interval = jackknife_position_share(capture.hidden[-1][:, capture.measured_T])
        return self.make_finding(
            _describe(shares, interval, untrained),
            shares[-1],
            unit=SHARE,
            interval=interval,
            references=make_untrained_reference(untrained[-1] if untrained is not None else None),
            light="info",
            table=Table.of(
                ("layer", "share", "stable rank of the mean positions", "untrained"),
                [
                    (layer, share, rank, untrained[layer] if untrained else None)
                    for layer, (share, rank) in enumerate(zip(shares, ranks, strict=True))
                ],
            ),
            figure=_draw_figure(shares, untrained),
        )


def _estimate_shares(capture: Capture) -> list[float]:
    """Estimate the share of position after every layer, at ordinary tokens without position 0.

    The states of one layer are read at a time, since they may lie on the disk.
    """
    return [estimate_position_share(hidden[:, capture.measured_T]) for hidden in capture.hidden]


def _draw_figure(shares: list[float], untrained: list[float] | None) -> Figure:
    """Draw the shares by layer."""
    layers = list(range(len(shares)))
    marks = [make_mark("line", layers, torch.tensor(shares), label="this model", emphasis="main")]
    if untrained is not None:
        marks.append(make_mark("line", layers, torch.tensor(untrained), label="untrained", emphasis="reference"))
    panel = Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="share of variance")
    return Figure((panel,), title="How much of the states position makes up, by layer")


def _describe(shares: list[float], interval: tuple[float, float] | None, untrained: list[float] | None) -> str:
    """Say what position accounts for; after the last layer it is undecided where the interval holds 0."""
    notes = [f"95 % interval {format_percent_range(*interval)}"] if interval else []
    notes += [f"untrained {format_percent(untrained[0])} and {format_percent(untrained[-1])}"] if untrained else []
    note = f" ({'; '.join(notes)})" if notes else ""
    peak = max(range(len(shares)), key=shares.__getitem__)
    undecided = (
        " Whether it accounts for any after the last layer is undecided." if interval and interval[0] <= 0 else ""
    )
    return (
        f"Position accounts for {format_percent(shares[0])} of the variance of the states after the embedding and for "
        f"{format_percent(shares[-1])} after the last layer{note}; the largest share is "
        f"{format_percent(shares[peak])}, {_name_layer(peak)}.{undecided}"
    )


def _name_layer(layer: int) -> str:
    """Name a layer in a sentence; 0 is the embedding."""
    return "after the embedding" if layer == 0 else f"after layer {layer}"
