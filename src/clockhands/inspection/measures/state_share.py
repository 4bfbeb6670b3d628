"""How much of the hidden state is position?"""

from __future__ import annotations

import torch

from clockhands.findings import Figure, Finding, Panel, Table
from clockhands.inspection.drawing import mark, percent, reference_untrained
from clockhands.inspection.estimators.variance_share import (
    compute_stable_rank,
    estimate_position_share,
    jackknife_position_share,
)
from clockhands.inspection.measures.measure import LAYERS, TASK, Measure
from clockhands.inspection.reading.capture import WITHOUT_FIRST, Capture
from clockhands.inspection.reading.reading import Reading


class StateShare(Measure):
    """The share of position in the hidden states of every layer."""

    name = "survival.share"
    question = "How much of the hidden state is position?"
    references = ("untrained",)
    method = (
        "Two-way analysis of variance: h(text, t) = μ + text + pos_t + interaction. The share is (SS_pos − "
        "(T−1)·MS_interaction) / SS_total, from which the part that chance puts into SS_pos is already taken; without "
        "that a model with no position at all would score one over the number of texts. Interval: jackknife over the "
        "texts, Student's t (Tukey 1958). Untrained: fresh weights." + WITHOUT_FIRST
    )
    source = "Song & Zhong 2023, with the bias removed"
    group = LAYERS
    rests_on = TASK

    def run(self, reading: Reading) -> Finding:
        capture = reading.capture
        found = _shares(capture)
        fresh = [value for value, _ in _shares(reading.control.capture)] if reading.control else None
        along = [value for value, _ in found]
        peak = max(range(len(along)), key=along.__getitem__)
        untrained = f" (untrained {percent(fresh[0])} and {percent(fresh[-1])})" if fresh else ""
        return self.finding(
            f"{percent(along[0])} of the variance behind the embedding and {percent(along[-1])} behind the last layer "
            f"is due to the place{untrained}; the most, {percent(along[peak])}, {_where(peak)}.",
            along[-1],
            interval=jackknife_position_share(capture.hidden[-1][:, capture.counted_T]),
            references=reference_untrained(fresh[-1] if fresh is not None else None),
            light="info",
            table=Table.of(
                ("layer", "share", "stable rank of the mean positions", "untrained"),
                [(i, value, rank, fresh[i] if fresh else None) for i, (value, rank) in enumerate(found)],
            ),
            figure=_figure(along, fresh),
        )


def _shares(capture: Capture) -> list[tuple[float, float]]:
    kept = capture.counted_T
    return [
        (estimate_position_share(states[:, kept]), compute_stable_rank(states[:, kept])) for states in capture.hidden
    ]


def _figure(along: list[float], fresh: list[float] | None) -> Figure:
    layers = list(range(len(along)))
    marks = [mark("line", layers, torch.tensor(along), label="this model", emphasis="main")]
    if fresh is not None:
        marks.append(mark("line", layers, torch.tensor(fresh), label="untrained", emphasis="reference"))
    return Figure((Panel(tuple(marks), xlabel="layer (0: embedding)", ylabel="share of variance"),))


def _where(layer: int) -> str:
    return "behind the embedding" if layer == 0 else f"behind layer {layer}"
