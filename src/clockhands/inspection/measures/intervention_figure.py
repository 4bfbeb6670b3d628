"""The bars of interventions, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Panel
from clockhands.inspection.drawing import chance_line, mark
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.shapes import Float, Tensor


def find_span(change_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean change over texts."""
    return bootstrap_ratio(change_N, torch.ones_like(change_N))


def draw_changes(changes: Sequence[tuple[str, Tensor]], whole: str, what: str) -> Figure:
    """Draw the mean change of every intervention; ``whole`` names what a change of 1 is, ``what`` what changes."""
    intervals = [find_span(change_N) for _, change_N in changes]
    bars = mark(
        "bars",
        [name for name, _ in changes],
        [float(change_N.mean()) for _, change_N in changes],
        low=[low for low, _ in intervals],
        high=[high for _, high in intervals],
        emphasis="main",
    )
    return Figure((Panel((bars, chance_line(1.0, whole)), ylabel=f"change of {what}"),))
