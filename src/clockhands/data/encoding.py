"""Text to ids: encoded at once, kept as one flat array, read as examples."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from clockhands.data.pairs import Pair
from clockhands.errors import ClockhandsWarning, DataError, UsageError, describe_unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from clockhands.data.tokens import Tokenizers

LONGEST = 1024
"""Tokens of the longest text that is read whole where no other bound is asked for."""
IGNORED = -100
"""The label that no loss counts."""
CHUNK = 10_000


class Example(TypedDict):
    """One example before it is padded."""

    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, end to end: row i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        """Make the flat form of rows of ids."""
        kept = [np.asarray(row, dtype=np.int32) for row in rows]
        offsets = np.cumsum([0, *map(len, kept)], dtype=np.int64)
        return cls(np.concatenate(kept) if kept else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids in each row."""
        return np.diff(self.offsets)


class PairDataset(Dataset[Example]):
    """Encoded pairs: ``input_ids`` is the source, ``labels`` the target, both ended.

    Index ``~i`` (that is, -1-i) gives example i as ballast: the same input, with labels that no loss counts. It
    fills the part of a batch that would otherwise be empty on one of several processes.
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
            "labels": labels if index >= 0 else np.full_like(labels, IGNORED),
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
    """Windows of ``length`` ids on one long text; window i starts at i * ``stride``. ``labels`` are the ids themselves:
    a language model shifts them by one.

    With ``stride`` 1 every place can start a window (for drawing at random); with ``length`` - 1 the windows cover
    the text so that every token but the first is predicted once. Index ``~i`` is window i as ballast.
    Raises UsageError if the text is shorter than one window.
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
        return {"input_ids": ids, "labels": ids if index >= 0 else np.full_like(ids, IGNORED)}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The length of each window, [windows, 1]: all the same."""
        return np.full((len(self), 1), self.length, np.int64)

    @property
    def longest(self) -> tuple[int]:
        """The length of all."""
        return (self.length,)


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text as a translator reads or writes them: with the tokenizer's special tokens, and ended.

    What looks like a special token inside a text is text.
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
    """Encode both sides. A pair with a side of more than ``max_length`` ids (its end included) is refused (``longer``
    is ``raise``), left out (``drop``; ``dropped`` of the result counts them) or shortened (``cut``; its ends stay).
    ``option``: where the bound was set, for the messages.

    A ClockhandsWarning counts the pairs that were left out or shortened.
    Raises DataError for a longer pair if it is to be refused, and if nothing remains; UsageError for another word.
    """
    sources = encode_texts(tokenizers.source, [pair.source for pair in pairs])
    targets = encode_texts(tokenizers.target, [pair.target for pair in pairs])
    rows = list(zip(sources, targets, strict=True))
    if max_length is not None:
        count = sum(max(map(len, row)) > max_length for row in rows)
        rows = _shorten(rows, max_length, longer)
        if count and rows:
            done = "left out" if longer == "drop" else "cut there"
            said = f"{count:,} of {len(pairs):,} pairs have a side of more than {max_length:,} tokens"
            warnings.warn(f"{said}, and are {done}; raise {option} to read them whole", ClockhandsWarning, stacklevel=2)
    if not rows:
        raise DataError(f"none of {len(pairs)} pairs is left: all are longer than max_length={max_length}")
    kept_sources, kept_targets = zip(*rows, strict=True)
    return PairDataset(Ragged.of(kept_sources), Ragged.of(kept_targets), len(pairs) - len(rows))


def shorten_rows(rows: list[list[int]], longest: int, option: str) -> list[list[int]]:
    """Cut each row to ``longest`` ids, its last one kept; a ClockhandsWarning counts those that were longer.

    ``option``: where the bound was set, for the warning.
    """
    count = sum(len(row) > longest for row in rows)
    if count:
        texts = "1 text has" if count == 1 else f"{count:,} texts have"
        said = f"{texts} more than {longest:,} tokens, and only the first {longest:,} are read; raise {option} for more"
        warnings.warn(said, ClockhandsWarning, stacklevel=2)
    return [_cut(row, longest) for row in rows]


def encode_documents(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> Ragged:
    """Return the ids of each document as a language model reads it: without special tokens but the one that ends it.

    A tokenizer that has no token for the end of a text ends none.
    """
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    return Ragged.of([*ids, *end] for ids in _encode(tokenizer, documents, special=False))


def encode_stream(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> NDArray[np.int32]:
    """Return all documents one after the other as ids, each ended: what windows are cut from."""
    return encode_documents(tokenizer, documents).values


def _shorten(
    rows: list[tuple[list[int], list[int]]], max_length: int, longer: str
) -> list[tuple[list[int], list[int]]]:
    if longer not in ("raise", "drop", "cut"):
        raise UsageError(describe_unknown("choice for longer pairs", longer, ("raise", "drop", "cut")))
    if longer == "drop":
        return [row for row in rows if max(map(len, row)) <= max_length]
    if longer == "cut":
        return [(_cut(source, max_length), _cut(target, max_length)) for source, target in rows]
    for number, row in enumerate(rows, 1):
        if max(map(len, row)) > max_length:
            raise DataError(
                f"pair {number} has {len(row[0])} source and {len(row[1])} target tokens, more than "
                f"max_length={max_length}; raise it, or choose longer='drop' or longer='cut'"
            )
    return rows


def _cut(ids: list[int], length: int) -> list[int]:
    return ids if len(ids) <= length else [*ids[: length - 1], ids[-1]]


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """Ids of all texts, on all cores; ``special`` adds what the tokenizer adds of its own."""
    if not tokenizer.is_fast:
        return list(tokenizer(list(texts), add_special_tokens=special, return_attention_mask=False)["input_ids"])
    backend: Any = tokenizer.backend_tokenizer
    before = backend.encode_special_tokens
    backend.no_padding()
    backend.no_truncation()
    backend.encode_special_tokens = True
    try:
        chunks = (texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK))
        return [
            row.ids for chunk in chunks for row in backend.encode_batch_fast(list(chunk), add_special_tokens=special)
        ]
    finally:
        backend.encode_special_tokens = before
