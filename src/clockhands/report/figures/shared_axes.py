"""Panels that show the same quantity share its axis: the same limits, names and numbers on the outer edge only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from clockhands.report.figures.mark_kind import Plot
from clockhands.report.figures.mark_kinds import KINDS

Axis = Literal["x", "y"]


def is_shared(plots: Sequence[Plot], axis: Axis) -> bool:
    """Tell whether all panels have one label, scale, set of categories, limits and size of heatmaps on this axis."""
    drawn = [plot for plot in plots if plot.panel.marks]
    if len(drawn) < 2 or any(plot.panel.equal for plot in drawn):
        return False
    return len({_describe_axis(plot, axis) for plot in drawn}) == 1 and bool(getattr(drawn[0].panel, f"{axis}label"))


def label_outer(plots: Sequence[Plot], columns: int, axis: Axis) -> None:
    """Leave names and numbers of a shared axis to the lowest panel of each column or the first of each row."""
    for index, plot in enumerate(plots):
        below = index + columns
        if axis == "x" and below < len(plots) and plots[below].panel.marks:
            plot.ax.tick_params(labelbottom=False)
            plot.ax.set_xlabel("")
        if axis == "y" and index % columns:
            plot.ax.tick_params(labelleft=False)
            plot.ax.set_ylabel("")


def _describe_axis(plot: Plot, axis: Axis) -> tuple[Any, ...]:
    """Return all that must be equal for two panels to share this axis."""
    panel = plot.panel
    maps = [mark.z for mark in panel.marks if KINDS[mark.kind].owns_axes]
    if axis == "x":
        return panel.xlabel, panel.xscale, panel.xlim, tuple(plot.x.names), tuple(len(z[0]) for z in maps)
    return panel.ylabel, panel.yscale, panel.ylim, tuple(plot.y.names), tuple(len(z) for z in maps)
