"""Text as token ids, and encoded text as data sets of pairs or windows, whose rows are kept in one array."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from clockhands.data.kinds import PIECE, cut_long
from clockhands.data.population import Pair
from clockhands.errors import ClockhandsWarning, DataError, UsageError, describe_unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from clockhands.data.tokens import Tokenizers


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
        return {"input_ids": self.sources[row], "labels": labels if index >= 0 else np.full_like(labels, IGNORED_LABEL)}

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


LONGEST = 1024
"""The most tokens of a text that are read where no other bound is given."""
CHUNK = 10_000
"""Texts that a tokenizer is given at a time."""
NEAR = 200
"""Characters on both sides of a cut by which it is seen whether the cut changes an id."""


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text as a translator reads or writes them: with the token that ends a text.

    Other special tokens that the tokenizer adds are there too. What looks like a special token inside a text is text.
    """
    end = tokenizer.eos_token_id
    encoded = _encode(tokenizer, texts, special=True)
    return [ids if ids and ids[-1] == end else [*ids, end] for ids in encoded]


def encode_pairs(
    pairs: Sequence[Pair],
    tokenizers: Tokenizers,
    *,
    max_length: int | None = None,
    longer: str = "raise",
    option: str = "max_length",
) -> PairDataset:
    """Encode both sides of each pair.

    Args:
        pairs: sources and targets.
        tokenizers: those of the two sides.
        max_length: the most ids of a side, the end included; None: no bound.
        longer: what is done with a pair that has a longer side: ``raise``; ``drop`` it (``dropped`` of the result
            counts these); ``cut`` it, and keep the token that ends it.
        option: the name of the option that sets the bound, for the warning.

    A ClockhandsWarning counts the pairs that were left out or cut. Raises DataError for a longer pair with ``raise``
    and if no pair remains, UsageError for another value of ``longer``.
    """
    if longer not in ("raise", "drop", "cut"):
        raise UsageError(describe_unknown("choice for longer pairs", longer, ("raise", "drop", "cut")))
    sources = encode_texts(tokenizers.source, [pair.source for pair in pairs])
    targets = encode_texts(tokenizers.target, [pair.target for pair in pairs])
    rows, count = [], 0
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        if max_length is not None and max(len(source), len(target)) > max_length:
            count += 1
            if longer == "raise":
                raise DataError(
                    f"pair {number} has {len(source)} source and {len(target)} target tokens, more than "
                    f"max_length={max_length}; raise it, or choose longer='drop' or longer='cut'"
                )
            if longer == "drop":
                continue
            source, target = _cut(source, max_length), _cut(target, max_length)
        rows.append((source, target))
    if not rows:
        why = f"each has a side of more than max_length={max_length} tokens" if pairs else "there are none"
        raise DataError(f"no pair is left of {len(pairs):,}: {why}")
    if count:
        has, are = ("has", "is") if count == 1 else ("have", "are")
        done = "left out" if longer == "drop" else f"cut to {max_length:,} tokens a side"
        said = f"{count:,} of {len(pairs):,} pairs {has} a side of more than {max_length:,} tokens, and {are} {done}"
        warnings.warn(f"{said}; raise {option} to read all of the text", ClockhandsWarning, stacklevel=2)
    kept_sources, kept_targets = zip(*rows, strict=True)
    return PairDataset(Ragged.of(kept_sources), Ragged.of(kept_targets), len(pairs) - len(rows))


def shorten_rows(rows: list[list[int]], longest: int, option: str) -> list[list[int]]:
    """Cut each row to ``longest`` ids, the last of which is that of the row; a ClockhandsWarning counts those cut.

    ``option``: the name of the option that sets the bound, for the warning.
    """
    count = sum(len(row) > longest for row in rows)
    if count:
        texts = "1 text has" if count == 1 else f"{count:,} texts have"
        said = f"{texts} more than {longest:,} tokens, and only the first {longest:,} are read; raise {option} for more"
        warnings.warn(said, ClockhandsWarning, stacklevel=2)
    return [_cut(row, longest) for row in rows]


def encode_documents(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> Ragged:
    """Return the ids of each document as a language model reads it: with the token that ends a text, and no other.

    A tokenizer that has no token for the end of a text ends none.
    """
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return Ragged.of([*ids, *end] for ids in _encode(tokenizer, documents, special=False))


def encode_stream(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> NDArray[np.int32]:
    """Return the ids of all documents one after the other, each with the token that ends a text."""
    return encode_documents(tokenizer, documents).values


def _cut(ids: list[int], length: int) -> list[int]:
    return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool) -> Iterator[list[int]]:
    """Yield the ids of each text, computed on all cores; with ``special`` the tokenizer adds its special tokens."""
    if not tokenizer.is_fast:
        yield from tokenizer(list(texts), add_special_tokens=special, return_attention_mask=False)["input_ids"]
        return
    backend: Any = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True

    def read(some: Sequence[str]) -> list[list[int]]:
        return [row.ids for row in backend.encode_batch_fast(list(some), add_special_tokens=special)]

    def is_seamless(left: str, right: str) -> bool:
        """Whether the ids at the end of one piece and at the beginning of the next are those of both as one text."""
        whole, first, second = read([left[-NEAR:] + right[:NEAR], left[-NEAR:], right[:NEAR]])
        return whole == first + second

    try:
        chunk, size = list[str](), 0
        for text in texts:
            pieces = [text] if special else list(cut_long(text))
            if len(pieces) > 1 and all(is_seamless(*pair) for pair in pairwise(pieces)):
                yield from read(chunk)
                yield list(chain.from_iterable(ids for piece in pieces for ids in read([piece])))
                chunk, size = [], 0
                continue
            chunk.append(text)
            size += len(text)
            if len(chunk) == CHUNK or size > PIECE:
                yield from read(chunk)
                chunk, size = [], 0
        yield from read(chunk)
    finally:
        backend.encode_special_tokens = before
