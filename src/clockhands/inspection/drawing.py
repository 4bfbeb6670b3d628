"""Put tensors into figures, and write numbers in verdicts."""

from __future__ import annotations

import math
from typing import Any

from clockhands.findings import Figure, Mark, Number, Panel, Reference, choose_digits


def to_tuple(values: Any) -> tuple[Any, ...]:
    """Return a tensor, array or iterable as a tuple of Python's own numbers."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return tuple(values)


def make_mark(kind: str, x: Any = (), y: Any = (), *, low: Any = (), high: Any = (), **rest: Any) -> Mark:
    """Make a mark of any ``kind`` from tensors of one length; ``rest`` are other fields of ``Mark``."""
    return Mark(kind, x=to_tuple(x), y=to_tuple(y), low=to_tuple(low), high=to_tuple(high), **rest)


def make_heatmap(z: Any, **rest: Any) -> Mark:
    """Make a heatmap of a matrix, its first row on top; ``rest`` are other fields of ``Mark``."""
    return Mark("heatmap", z=tuple(to_tuple(row) for row in z), **rest)


def draw_head_grid(grid_LH: Any, title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; layers are numbered from 1, and each cell is named."""
    layers, heads = range(1, len(grid_LH) + 1), range(grid_LH.shape[1])
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    picture = make_heatmap(grid_LH, x=tuple(heads), y=tuple(layers), names=names, label="share")
    return Figure((Panel((picture,), xlabel="head", ylabel="layer"),), title=title)


def make_reference_line(y: float, label: str) -> Mark:
    """Make a horizontal line at the value of a reference, such as chance."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")


def format_signed(value: float) -> str:
    """Return a number with two decimals and a real minus sign: ``0.52``, ``−0.02``."""
    return f"{value:.2f}".replace("-", "−")


def format_percent(share: float) -> str:
    """Return a share as a percentage, with one decimal below ten: ``12 %``, ``9.0 %``, ``0.2 %``."""
    value = 100 * share
    if abs(value) < 0.05:
        return "0.0 %"
    return (f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %").replace("-", "−")


def format_percent_range(low: float, high: float) -> str:
    """Return an interval of shares: ``90 % to 93 %``, with as many more digits as keep two different ends apart."""
    if format_percent(low) != format_percent(high) or max(abs(low), abs(high)) < 0.00005:
        return f"{format_percent(low)} to {format_percent(high)}"
    digits = choose_digits(100 * low, 100 * high, 0 if abs(100 * low) >= 9.95 else 1)
    return f"{100 * low:.{digits}f} % to {100 * high:.{digits}f} %".replace("-", "−")


def format_ratio(value: float) -> str:
    """Return a ratio above 0 with at least two significant digits and no exponent: ``1,234``, ``4.3``, ``0.0071``."""
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}"


def make_untrained_reference(value: Number | None) -> tuple[Reference, ...]:
    """Return the value of the untrained control as the reference "untrained"; nothing if there is no control."""
    return () if value is None else (Reference("untrained", value),)
