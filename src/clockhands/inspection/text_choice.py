"""Choose the text that a model is measured on: the caller's, that of its training, or built-in English."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from clockhands.data import open_corpus
from clockhands.inspection.reading.windows import (
    DEFAULT_LENGTH,
    Ids,
    Windows,
    check_tokenizer,
    cut_ids,
    cut_pair_windows,
    cut_windows,
)
from clockhands.models.subject import Subject
from clockhands.shapes import Tensor

SHORTEST_WINDOW = 16
"""The fewest tokens of a window whose length follows the training text."""
MOST_PIECE_CHARACTERS = 80
"""A line that is both source and target of a decoder is cut into pieces of at most so many characters."""


def choose_windows(subject: Subject, texts: Sequence[str] | Ids | None, length: int | None, count: int) -> Windows:
    """Return at most ``count`` windows of ``length`` tokens of ``texts``, or of the training text, or of English.

    Raises DataError for too little text; UsageError for windows longer than the model reads, and for strings where the
    model has no tokenizer.
    """
    max_length = subject.max_length
    if isinstance(texts, Tensor | np.ndarray):
        windows = cut_ids(texts, count=count, max_length=max_length, length=length)
        return replace(windows, source_NS=windows.ids_NT) if subject.reads_source else windows
    usual_length = _measure_usual_length(subject) if texts is None else DEFAULT_LENGTH
    length = length or min(DEFAULT_LENGTH, max_length or DEFAULT_LENGTH, usual_length)
    check_tokenizer(subject, "text needs", ", or the text as token ids (--ids FILE.npy, ids=...)")
    start = subject.start_token
    pairs = _choose_pairs(subject, texts)
    if pairs is not None:
        return cut_pair_windows(
            subject.tokenizer,
            subject.source_tokenizer,
            pairs,
            length=length,
            count=count,
            max_length=max_length,
            max_source_length=subject.max_source_length,
            start=start,
        )
    texts = _choose_texts(subject, texts)
    windows = cut_windows(subject.tokenizer, texts, length=length, count=count, max_length=max_length, start=start)
    return replace(windows, source_NS=windows.ids_NT) if subject.reads_source else windows


def _choose_texts(subject: Subject, texts: Sequence[str] | None) -> Sequence[str]:
    """Return the caller's texts, else the training text, else built-in English."""
    if texts is not None:
        return texts
    # The documentation strings of Python's standard library: English prose that every machine has.
    return subject.training_texts or list(open_corpus("stdlib").documents("train"))


def _choose_pairs(subject: Subject, texts: Sequence[str] | None) -> Iterable[tuple[str, str]] | None:
    """Return pairs of source and target for a decoder; None where there are none.

    Windows are then cut from texts alone, and a decoder reads each as its own source too.
    """
    if texts is None and subject.training_pairs is not None:
        return subject.training_pairs
    if subject.reads_source and subject.source_tokenizer is not None:
        return _pair_with_itself(_choose_texts(subject, texts))
    return None


def describe_origin(subject: Subject, windows: Windows, is_default: bool) -> str:
    """Return where the windows come from and what the encoder read beside them, to follow "96 windows of 128 tokens".

    ``is_default``: the caller passed no text.
    """
    training_text = subject.training_texts or subject.training_pairs
    origin = " of the text it was trained on" if training_text else " of Python's documentation"
    origin = origin if is_default else ""
    if windows.source_NS is None:
        return origin
    translates = is_default and bool(subject.training_pairs)
    return f"{origin}, with {'the sources that they translate' if translates else 'the same text as source'}"


def _pair_with_itself(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every line of the texts, long ones in pieces, as a source and as its own target."""
    for text in texts:
        for line in text.split("\n"):
            for piece in textwrap.wrap(line, MOST_PIECE_CHARACTERS, break_on_hyphens=False):
                yield piece, piece


def _measure_usual_length(subject: Subject, sample: int = 200) -> int:
    """Return the length in tokens that nine of ten training texts do not exceed, at least ``SHORTEST_WINDOW``.

    Positions beyond it were hardly trained. The first ``sample`` texts are measured; without training text it is the
    default length.
    """
    texts = subject.training_texts or [target for _, target in (subject.training_pairs or [])[:sample]]
    if not texts or subject.tokenizer is None:
        return DEFAULT_LENGTH
    lengths = sorted(len(subject.tokenizer(text)["input_ids"]) for text in texts[:sample])
    return max(SHORTEST_WINDOW, lengths[int(0.9 * (len(lengths) - 1))])
