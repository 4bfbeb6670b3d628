"""Encode text as token ids: pairs, documents, and one long stream."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clockhands.data.datasets import PairDataset, Ragged
from clockhands.data.population import Pair
from clockhands.errors import ClockhandsWarning, DataError, UsageError, describe_unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from clockhands.data.tokens import Tokenizers

LONGEST = 1024
"""The most tokens of a text that are read where no other bound is given."""
CHUNK = 10_000


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


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    """Return the ids of each text, computed on all cores; with ``special`` the tokenizer adds its special tokens."""
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
