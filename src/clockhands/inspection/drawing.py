"""Put tensors into figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clockhands.findings import Figure, Mark, Number, Panel, Scalar
from clockhands.shapes import Float, Tensor

Numbers: TypeAlias = Tensor | NDArray[Any] | Iterable[Number]
"""One number for each point of a mark."""
Values: TypeAlias = Numbers | Iterable[Scalar]
"""Where the points of a mark stand: numbers, or names such as those of bars."""


def to_tuple(values: Values) -> tuple[Any, ...]:
    """Return values as a tuple of Python's own numbers, or of what an iterable yields."""
    return tuple(values.tolist() if isinstance(values, Tensor | np.ndarray) else values)


def make_mark(kind: str, x: Values = (), y: Values = (), *, low: Numbers = (), high: Numbers = (), **rest: Any) -> Mark:
    """Make a mark of any ``kind`` from tensors of one length; ``rest`` are other fields of ``Mark``."""
    return Mark(kind, x=to_tuple(x), y=to_tuple(y), low=to_tuple(low), high=to_tuple(high), **rest)


def make_heatmap(z: Tensor | Iterable[Iterable[Number | None]], **rest: Any) -> Mark:
    """Make a heatmap of a matrix, its first row on top, None for an empty cell; ``rest``: other fields of ``Mark``."""
    return Mark("heatmap", z=tuple(to_tuple(row) for row in z), **rest)


def draw_head_grid(grid_LH: Float[Tensor, "L H"], title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; both are numbered from 1, each cell named."""
    layers, heads = (range(1, count + 1) for count in grid_LH.shape)
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    picture = make_heatmap(grid_LH, x=tuple(heads), y=tuple(layers), names=names, label="share")
    return Figure((Panel((picture,), xlabel="head", ylabel="layer"),), title=title)


def make_reference_line(y: float, label: str) -> Mark:
    """Make a horizontal line at the value of a reference, such as chance."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")
