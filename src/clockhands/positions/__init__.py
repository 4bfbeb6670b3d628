"""Positions as data: the one place that makes them. No scheme calls ``arange`` or guesses an offset.

A position tensor is ``[B, S]``, or ``[B, S, A]`` with several coordinates for each token (row and column, time, height
and width). Integers count tokens; floats are real-valued times or stretched counts. Padding gets position 0: it is
masked away, and 0 is inside every table.

``TRANSFORMS`` are the changes of positions that a configuration can name, under any scheme.
"""

from clockhands.positions.making import (
    Mask,
    centred,
    continued,
    from_mask,
    grid,
    last_token,
    normalised,
    packed,
    real_valued,
    same_document,
    scaled,
    segments,
    sequential,
    shifted,
    text_axes,
)
from clockhands.positions.transforms import TRANSFORMS, Cape, Randomised, Scaled, Shifted, Transform, make_transform

__all__ = [
    "TRANSFORMS",
    "Cape",
    "Mask",
    "Randomised",
    "Scaled",
    "Shifted",
    "Transform",
    "centred",
    "continued",
    "from_mask",
    "grid",
    "last_token",
    "make_transform",
    "normalised",
    "packed",
    "real_valued",
    "same_document",
    "scaled",
    "segments",
    "sequential",
    "shifted",
    "text_axes",
]
