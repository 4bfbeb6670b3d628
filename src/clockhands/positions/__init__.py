"""Positions as data: the one place that makes them. No scheme calls ``arange`` or guesses an offset.

A position tensor is ``[B, S]``, or ``[B, S, A]`` with several coordinates for each token (row and column, time, height
and width). Integers count tokens; floats are real-valued times or stretched counts. Padding gets position 0: it is
masked away, and 0 is inside every table.

``TRANSFORMS`` are the changes of positions that a configuration can name, under any scheme.
"""

from clockhands.positions.drawn import Jittered, RandomFloat, Skipping
from clockhands.positions.making import (
    Mask,
    centre,
    check_times,
    continue_from_mask,
    count_from_mask,
    count_packed,
    count_up,
    find_last,
    make_document_mask,
    make_grid,
    make_patch_centres,
    make_segments,
    normalise,
    repeat_on_axes,
    scale,
    shift,
)
from clockhands.positions.transforms import TRANSFORMS, Cape, Randomised, Scaled, Shifted, Transform, make_transform

__all__ = [
    "TRANSFORMS",
    "Cape",
    "Jittered",
    "Mask",
    "RandomFloat",
    "Randomised",
    "Scaled",
    "Shifted",
    "Skipping",
    "Transform",
    "centre",
    "check_times",
    "continue_from_mask",
    "count_from_mask",
    "count_packed",
    "count_up",
    "find_last",
    "make_document_mask",
    "make_grid",
    "make_patch_centres",
    "make_segments",
    "make_transform",
    "normalise",
    "repeat_on_axes",
    "scale",
    "shift",
]
