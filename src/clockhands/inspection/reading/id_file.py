"""A file of token ids, as ``numpy.save`` writes it, in place of text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clockhands.errors import DataError
from clockhands.inspection.reading.windows import FEWEST_WINDOWS, Ids
from clockhands.pretrained import first_line

__all__ = ["read_ids"]


def read_ids(path: str | Path) -> Ids:
    """Open a ``.npy`` file of token ids; nothing of it is read into memory yet, and nothing pickled is opened.

    Raises DataError for a missing file, one that numpy did not write, and one of fewer than 8 texts.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"there is no file {path}; token ids are read from a file that numpy.save wrote")
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    # A damaged header is parsed as Python, and may ask for an array of any size.
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError, OverflowError) as fault:
        raise DataError(
            f"{path} is not a .npy file of numbers (write it with numpy.save, from an array of integers): "
            f"{first_line(fault)}"
        ) from fault
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} holds several arrays (.npz); save the token ids alone with numpy.save")
    if array.ndim == 2 and len(array) < FEWEST_WINDOWS:
        raise DataError(
            f"{path} has {len(array)} texts; at least {FEWEST_WINDOWS} are needed to tell position from chance"
        )
    return array
