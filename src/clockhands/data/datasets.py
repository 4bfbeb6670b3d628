"""Encoded text as data sets of pairs or windows, whose rows are kept in one array."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from clockhands.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


Batch: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True)
class PairCollator:
    """Pads pairs on the right: ``input_ids`` and ``attention_mask`` [B, T], ``labels`` [B, S] with -100 at pads.

    The model makes the decoder's input by shifting the labels. ``multiple`` rounds the padded lengths up.
    """

    pad_id: int
    multiple: int = 1

    def __call__(self, examples: Sequence[Example]) -> Batch:
        ids_BT, mask_BT = pad([example["input_ids"] for example in examples], self.pad_id, self.multiple)
        labels_BS, _ = pad([example["labels"] for example in examples], IGNORED_LABEL, self.multiple)
        return {"input_ids": ids_BT, "attention_mask": mask_BT, "labels": labels_BS}


@dataclass(frozen=True)
class WindowCollator:
    """Stacks windows of one length for a causal language model: ``input_ids`` and ``labels`` [B, S].

    The labels are not shifted; the model does that.
    """

    def __call__(self, examples: Sequence[Example]) -> Batch:
        ids_BS = np.stack([example["input_ids"] for example in examples])
        labels_BS = np.stack([example["labels"] for example in examples])
        return {"input_ids": _make_tensor(ids_BS), "labels": _make_tensor(labels_BS)}


@dataclass(frozen=True)
class MaskedCollator:
    """Masks windows of one length for a masked language model, as BERT does (Devlin et al. 2019, 3.1).

    A ``share`` of the tokens is drawn: 80 % of these become ``mask_id``, 10 % a random token, and 10 % stay. ``labels``
    are the drawn tokens, and -100 everywhere else. ``ordinary_V`` are the ids that may be drawn and may replace others:
    all but the special ones. What is drawn depends on ``seed`` and the batch alone, so that it differs between epochs
    and is the same when a run is repeated or resumed.
    """

    mask_id: int
    ordinary_V: NDArray[np.int64]
    share: float = 0.15
    seed: int = 0

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, share: float = 0.15, seed: int = 0) -> MaskedCollator:
        """Make the collator for a tokenizer. Raises UsageError without a mask token, and unless 0 < ``share`` < 1."""
        if tokenizer.mask_token_id is None:
            raise UsageError("this tokenizer has no mask token; train one with task='masked language modelling'")
        if not 0 < share < 1:
            raise UsageError(f"share={share} of tokens to mask lies between 0 and 1")
        ordinary_V = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        return cls(int(tokenizer.mask_token_id), ordinary_V, share, seed)

    def __call__(self, examples: Sequence[Example]) -> Batch:
        ids_BS = np.stack([example["input_ids"] for example in examples])
        real_BS = np.stack([example["labels"] for example in examples])
        rng = np.random.default_rng((self.seed, zlib.crc32(ids_BS.tobytes())))
        drawn_BS = (rng.random(ids_BS.shape) < self.share) & np.isin(ids_BS, self.ordinary_V)
        fate_BS = rng.random(ids_BS.shape)
        random_BS = rng.choice(self.ordinary_V, ids_BS.shape)
        seen_BS = np.where(drawn_BS & (fate_BS < 0.8), self.mask_id, ids_BS)
        seen_BS = np.where(drawn_BS & (fate_BS >= 0.9), random_BS, seen_BS)
        return {"input_ids": _make_tensor(seen_BS), "labels": _make_tensor(np.where(drawn_BS, real_BS, IGNORED_LABEL))}


def pad(rows: Sequence[NDArray[np.int32]], value: int, multiple: int = 1) -> tuple[Tensor, Tensor]:
    """Pad rows on the right with ``value`` to one int64 tensor [B, S]; return it with its mask [B, S], 1 at tokens."""
    lengths_B = np.fromiter(map(len, rows), np.int64, len(rows))
    width = -(-int(lengths_B.max()) // multiple) * multiple
    real_BS = np.arange(width) < lengths_B[:, None]
    padded_BS = np.full(real_BS.shape, value, np.int64)
    padded_BS[real_BS] = np.concatenate(rows)
    return torch.from_numpy(padded_BS), _make_tensor(real_BS)


def _make_tensor(values: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))
