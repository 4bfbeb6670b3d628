"""Where recordings are kept: in memory, or in temporary files when together they would be too large."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from clockhands.shapes import Tensor

IN_MEMORY = 2**30
"""Bytes of recordings kept in memory; more goes to a temporary file that the system pages in and out."""


class Store:
    """Tensors in memory, or in one temporary file each when together they would be too large."""

    def __init__(self, total: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="clockhands-") if total > IN_MEMORY else None
        self.count = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor on the CPU."""
        if self.folder is None:
            return torch.empty(shape, dtype=dtype)
        self.count += 1
        size = torch.Size(shape).numel()
        path = Path(self.folder.name) / str(self.count)
        flat = torch.from_file(str(path), shared=True, size=size, dtype=dtype)
        flat.store = self  # type: ignore[attr-defined]  # the folder lives as long as its tensors
        return flat.view(shape)
