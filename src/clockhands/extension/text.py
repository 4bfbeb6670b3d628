"""The text that a model is measured on: one stream of tokens, of which search and judgement share no part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clockhands.data import encode_documents
from clockhands.errors import DataError, UsageError
from clockhands.models import LanguageModel
from clockhands.shapes import Int

__all__ = ["Stream", "cut_texts", "encode_text", "multiply_texts", "split_stream"]

Stream = NDArray[np.int64]
MOST_UNKNOWN = 0.2
"""The share of unknown tokens above which a tokenizer does not fit a text."""
FEWEST_TEXTS = 8
"""Fewer texts give no interval that is worth printing."""
COMMON_WORK = 2_048 * 10_000_000
"""Tokens of a text times parameters of a model, for which the numbers of texts and questions of a choice are meant."""
COMMON_TOKENS = 8_192
"""Tokens of that many texts, where the model is smaller: attention costs more in long texts, whatever the model."""
MOST_TIMES = 8
"""How many times as many are read at most, where texts are shorter or the model is smaller."""


def encode_text(model: LanguageModel, documents: Sequence[str]) -> Stream:
    """Return documents as one stream of tokens. Raises DataError where the tokenizer does not know the text."""
    stream = encode_documents(model.tokenizer, documents).values.astype(np.int64)
    unknown = model.tokenizer.unk_token_id
    share = float((stream == unknown).mean()) if unknown is not None and len(stream) else 0.0
    if share > MOST_UNKNOWN:
        raise DataError(
            f"{share:.0%} of the text are tokens that the tokenizer of {model.source} does not know; give a text of "
            "the kind that it was trained on"
        )
    return stream


def multiply_texts(model: LanguageModel, longest: int) -> int:
    """Return how many times as many texts a choice reads where model and texts are so small, for no more cost.

    A short text scores few tokens, so methods that differ by some percent are told apart by more of them only.
    """
    parameters = sum(parameter.numel() for parameter in model.model.parameters())
    return min(MOST_TIMES, max(1, min(COMMON_TOKENS // longest, COMMON_WORK // (longest * max(1, parameters)))))


def split_stream(stream: Stream, parts: int) -> list[Stream]:
    """Split a stream into parts of equal length, in order."""
    return np.array_split(stream, parts)


def cut_texts(stream: Stream, length: int, tail: int, count: int, start: Sequence[int]) -> Int[np.ndarray, "N S"]:
    """Cut up to ``count`` texts of ``length`` tokens whose last ``tail`` tokens no two share, evenly over the stream.

    Each begins with ``start``. Raises UsageError where fewer than 8 fit.
    """
    own = length - len(start)
    fitting = (len(stream) - own) // tail + 1 if len(stream) >= own else 0
    if fitting < FEWEST_TEXTS:
        raise UsageError(
            f"the text has {len(stream):,} tokens here, too few for {FEWEST_TEXTS} texts of {length:,}; give more "
            "text, or a smaller --to"
        )
    ends_N = np.linspace(own, len(stream), min(count, fitting)).astype(np.int64)
    before_NS = np.broadcast_to(np.asarray(start, np.int64), (len(ends_N), len(start)))
    return np.concatenate([before_NS, stream[ends_N[:, None] - own + np.arange(own)]], axis=1)
