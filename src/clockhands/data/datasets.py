"""Encoded text as data sets of pairs or windows, whose rows are kept in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from clockhands.errors import UsageError

__all__ = ["IGNORED_LABEL", "Example", "PairDataset", "Ragged", "WindowDataset"]

IGNORED_LABEL = -100
"""The label that no loss counts."""


class Example(TypedDict):
    """One example before it is padded."""

    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one array: row i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """Put rows of ids into one array."""
        kept = [np.asarray(row, dtype=np.int32) for row in rows]
        offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
        return cls(np.concatenate(kept) if kept else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of ids in each row."""
        return np.diff(self.offsets)


class PairDataset(Dataset[Example]):
    """Encoded pairs: ``input_ids`` is the source and ``labels`` the target, each with the token that ends a text.

    Index ``~i`` (that is, -1-i) gives example i with labels that no loss counts: where several processes share a batch,
    it stands in for the part of one that would be empty.
    """

    def __init__(self, sources: Ragged, targets: Ragged, dropped: int = 0) -> None:
        self.sources, self.targets, self.dropped = sources, targets, dropped

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> Example:
        row = index if index >= 0 else ~index
        labels = self.targets[row]
        return {
            "input_ids": self.sources[row],
            "labels": labels if index >= 0 else np.full_like(labels, IGNORED_LABEL),
        }

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Source and target length of each pair, [pairs, 2]: what batches are made from."""
        return np.stack([self.sources.lengths, self.targets.lengths], axis=1)

    @property
    def longest(self) -> tuple[int, int]:
        """The longest source and the longest target."""
        return int(self.sources.lengths.max()), int(self.targets.lengths.max())


class WindowDataset(Dataset[Example]):
    """Windows of ``length`` ids of one long text; window i starts at i * ``stride``.

    ``labels`` are the ids themselves: a language model shifts them by one. With ``stride`` 1 a window can start at
    every token (to draw windows at random); with ``length`` - 1, the default, every token but the first is predicted
    once. Index ``~i`` gives window i with labels that no loss counts, as for ``PairDataset``. Raises UsageError for a
    ``length`` below 2 and if the text is shorter than one window.
    """

    def __init__(self, stream: NDArray[np.int32], length: int, stride: int | None = None) -> None:
        if length < 2:
            raise UsageError(f"length={length}; a window holds at least 2 tokens")
        if len(stream) < length:
            raise UsageError(f"the text has {len(stream)} tokens, less than one window of length={length}; shorten it")
        self.stream, self.length = stream, length
        self.stride = length - 1 if stride is None else stride

    def __len__(self) -> int:
        return (len(self.stream) - self.length) // self.stride + 1

    def __getitem__(self, index: int) -> Example:
        start = (index if index >= 0 else ~index) * self.stride
        ids = self.stream[start : start + self.length]
        return {"input_ids": ids, "labels": ids if index >= 0 else np.full_like(ids, IGNORED_LABEL)}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each window, [windows, 1]; all are the same."""
        return np.full((len(self), 1), self.length, np.int64)

    @property
    def longest(self) -> tuple[int]:
        """The length of every window."""
        return (self.length,)
