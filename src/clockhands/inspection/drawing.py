"""Put tensors into figures."""

from __future__ import annotations

from typing import Any

from clockhands.findings import Figure, Mark, Panel
from clockhands.shapes import Float, Tensor


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


def draw_head_grid(grid_LH: Float[Tensor, "L H"], title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; layers are numbered from 1, and each cell is named."""
    layers, heads = range(1, len(grid_LH) + 1), range(grid_LH.shape[1])
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    picture = make_heatmap(grid_LH, x=tuple(heads), y=tuple(layers), names=names, label="share")
    return Figure((Panel((picture,), xlabel="head", ylabel="layer"),), title=title)


def make_reference_line(y: float, label: str) -> Mark:
    """Make a horizontal line at the value of a reference, such as chance."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")
