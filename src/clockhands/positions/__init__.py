"""Make positions, which are data: schemes are given them, and never count tokens or guess an offset.

A position tensor is ``[B, S]``, or ``[B, S, A]`` with several coordinates for each token (row and column, time, height
and width). Integers count tokens; floats are real-valued times or stretched counts. Padding gets position 0: it is
masked away, and 0 is inside every table.

``TRANSFORMS`` are the changes of positions that a configuration can name, for the encoder and the decoder.
"""

from clockhands.positions.making import (
    TokenMask,
    centre,
    continue_from_mask,
    count_from_mask,
    count_packed,
    count_up,
    find_last_position,
    interpolate,
    make_document_mask,
    make_grid,
    make_patch_centres,
    make_segments,
    normalise,
    read_times,
    repeat_on_axes,
    shift,
)
from clockhands.positions.transforms import (
    TRANSFORMS,
    Cape,
    Jittered,
    RandomFloat,
    Randomised,
    Scaled,
    Shifted,
    Skipping,
    Transform,
    TransformContext,
    make_transform,
)

__all__ = [
    "TRANSFORMS",
    "Cape",
    "Jittered",
    "RandomFloat",
    "Randomised",
    "Scaled",
    "Shifted",
    "Skipping",
    "TokenMask",
    "Transform",
    "TransformContext",
    "centre",
    "continue_from_mask",
    "count_from_mask",
    "count_packed",
    "count_up",
    "find_last_position",
    "interpolate",
    "make_document_mask",
    "make_grid",
    "make_patch_centres",
    "make_segments",
    "make_transform",
    "normalise",
    "read_times",
    "repeat_on_axes",
    "shift",
]
