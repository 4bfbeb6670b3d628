"""Where recordings are kept: in memory, or in temporary files when together they would be too large."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch

from clockhands.errors import UsageError
from clockhands.machine import format_bytes
from clockhands.shapes import Tensor

MOST_IN_MEMORY = 2**30
"""The most bytes of recordings kept in memory; more go to temporary files, which the system pages in and out."""


class TensorStorage:
    """Tensors in memory, or in one temporary file each when together they would be too large."""

    def __init__(self, total: int) -> None:
        """Prepare for ``total`` bytes. Raises UsageError if they do not fit the disk of temporary files."""
        self.folder = None
        self.count = 0
        if total > MOST_IN_MEMORY:
            self._check_disk(total)
            self.folder = tempfile.TemporaryDirectory(prefix="clockhands-")

    @staticmethod
    def _check_disk(total: int) -> None:
        """Raise UsageError if ``total`` bytes do not fit the disk of temporary files."""
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if total > free:
            raise UsageError(
                f"the states of these windows need {format_bytes(total)} in temporary files, and {format_bytes(free)} "
                f"are free in {tempfile.gettempdir()}; lower --texts (count=...) or --length (length=...), or set "
                "TMPDIR"
            )

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor on the CPU, in memory or in a file of its own."""
        if self.folder is None:
            return torch.empty(shape, dtype=dtype)
        self.count += 1
        size = torch.Size(shape).numel()
        path = Path(self.folder.name) / str(self.count)
        flat = torch.from_file(str(path), shared=True, size=size, dtype=dtype)
        # Keeps the folder as long as its tensors: a view keeps the tensor that it is a view of.
        flat.storage_owner = self  # type: ignore[attr-defined]
        return flat.view(shape)
