"""Numbers as the script of a page reads them: integers of 8 or 16 bits, in base64."""

from __future__ import annotations

import base64

import torch

from clockhands.shapes import Tensor

LARGEST_INT8, LARGEST_INT16 = 127, 32767
"""The largest integers of 8 and of 16 bits."""


def pack_int8(values: Tensor) -> str:
    """Return values from -1 to 1, in units of 1 / 127, as signed integers of 8 bits in base64."""
    rounded = (values.double().clamp(-1, 1) * LARGEST_INT8).round().to(torch.int8)
    return base64.b64encode(rounded.contiguous().numpy().tobytes()).decode("ascii")


def pack_int16(values: Tensor) -> str:
    """Return values from -32768 to 32767, rounded, as signed little-endian integers of 16 bits in base64."""
    return base64.b64encode(values.round().to(torch.int16).numpy().astype("<i2").tobytes()).decode("ascii")
