"""The changes that interventions cause: their intervals, and their bars."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clockhands.findings import Figure, Panel
from clockhands.inspection.drawing import make_mark, make_reference_line
from clockhands.inspection.estimators.intervals import bootstrap_ratio
from clockhands.shapes import Float, Tensor


def bootstrap_change(change_N: Float[Tensor, " N"]) -> tuple[float, float]:
    """Return the 95 % interval of the mean change over N texts, texts resampled."""
    return bootstrap_ratio(change_N, torch.ones_like(change_N))


def draw_changes(changes: Sequence[tuple[str, Tensor]], full_change: str, quantity: str) -> Figure:
    """Draw the mean change of every intervention as a bar with its interval.

    Args:
        changes: the name of each intervention, and its change in each text.
        full_change: what a change of 1 is, such as "another text".
        quantity: what changes, such as "a token's state".
    """
    intervals = [bootstrap_change(change_N) for _, change_N in changes]
    bars = make_mark(
        "bars",
        [name for name, _ in changes],
        [float(change_N.mean()) for _, change_N in changes],
        low=[low for low, _ in intervals],
        high=[high for _, high in intervals],
        emphasis="main",
    )
    panel = Panel((bars, make_reference_line(1.0, full_change)), ylabel=f"share by which {quantity} changes")
    return Figure((panel,), title=f"Change of {quantity} when positions or order are changed")
