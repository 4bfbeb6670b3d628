"""Put tensors into figures."""

from __future__ import annotations

from typing import Any

from clockhands.findings import Figure, draw_heatmap
from clockhands.shapes import Float, Tensor


def draw_head_grid(grid_LH: Float[Tensor, "L H"], title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; both are numbered from 1, each cell named."""
    layers, heads = (range(1, count + 1) for count in grid_LH.shape)
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    where: dict[str, Any] = {"x": tuple(heads), "y": tuple(layers), "names": names}
    return draw_heatmap(grid_LH, title=title, xlabel="head", ylabel="layer", label="share", **where)
