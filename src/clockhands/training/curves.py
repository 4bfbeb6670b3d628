"""Draw loss, validation loss and learning rate of a run over its steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clockhands.files import write_bytes

__all__ = ["draw_curves"]


def draw_curves(metrics: Sequence[Mapping[str, Any]], path: Path, title: str) -> Path | None:
    """Draw the curves to an SVG or PNG file, as the suffix of ``path`` says; None if there is nothing to draw."""
    lines = {name: _list_points(metrics, name) for name in ("loss", "validation_loss", "learning_rate")}
    if not lines["loss"] and not lines["validation_loss"]:
        return None
    import matplotlib

    # Without pyplot: no window system is asked for, and nothing of the user's settings changes.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Text stays text and identifiers stay the same, so that equal runs make equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "clockhands"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if lines["loss"]:
            axes.plot(*zip(*lines["loss"], strict=True), label="training loss", lw=1.5)
        if lines["validation_loss"]:
            axes.plot(*zip(*lines["validation_loss"], strict=True), label="validation loss", marker=".", lw=1.5)
        axes.set(xlabel="step", ylabel="loss of a target token (nats)", title=title)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right")
        if lines["learning_rate"]:
            rates = axes.twinx()
            rates.plot(*zip(*lines["learning_rate"], strict=True), color="grey", lw=0.8, ls=":")
            rates.set(ylabel="learning rate (dotted)", ylim=(0, None))
        file = io.BytesIO()
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    return write_bytes(path, file.getvalue())


def _list_points(metrics: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return the steps at which a number was recorded, with its values."""
    return [(line["step"], line[name]) for line in metrics if name in line]
