"""Put tensors into figures, and into the data that the script of a page reads."""

from __future__ import annotations

import base64
from typing import Any

import torch

from clockhands.findings import Figure, draw_heatmap
from clockhands.shapes import Float, Tensor


def draw_head_grid(grid_LH: Float[Tensor, "L H"], title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; both are numbered from 1, each cell named."""
    layers, heads = (range(1, count + 1) for count in grid_LH.shape)
    names = tuple(f"layer {layer} head {head}" for layer in layers for head in heads)
    where: dict[str, Any] = {"x": tuple(heads), "y": tuple(layers), "names": names}
    return draw_heatmap(grid_LH, title=title, xlabel="head", ylabel="layer", label="share", **where)


LARGEST_INT8, LARGEST_INT16 = 127, 32767
"""The largest integers of 8 and of 16 bits."""


def pack_int8(values: Tensor) -> str:
    """Return values from -1 to 1, in units of 1 / 127, as signed integers of 8 bits in base64."""
    rounded = (values.double().clamp(-1, 1) * LARGEST_INT8).round().to(torch.int8)
    return base64.b64encode(rounded.contiguous().numpy().tobytes()).decode("ascii")


def pack_int16(values: Tensor) -> str:
    """Return values from -32768 to 32767, rounded, as signed little-endian integers of 16 bits in base64."""
    return base64.b64encode(values.round().to(torch.int16).numpy().astype("<i2").tobytes()).decode("ascii")
