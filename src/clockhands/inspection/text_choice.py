"""The text that a model is measured on: what was given, what it was trained on, or built-in English."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clockhands.inspection.reading.windows import USUAL, Ids, Windows, cut_ids, cut_pair_windows, cut_windows
from clockhands.inspection.subject.subject import Subject
from clockhands.shapes import Tensor

SHORTEST_WINDOW = 16
PIECE = 80
"""Letters of a line that an encoder reads at once beside a decoder."""


def choose_windows(subject: Subject, texts: Sequence[str] | Ids | None, length: int | None, count: int) -> Windows:
    """Return at most ``count`` windows of ``length`` tokens of what was given, of the training text, or of English.

    Raises DataError for too little text, UsageError for windows longer than the model reads.
    """
    max_length = subject.max_length
    if isinstance(texts, Tensor | np.ndarray):
        data = cut_ids(texts, count=count, max_length=max_length, length=length)
        return replace(data, source_NS=data.ids_NT) if subject.reads_source else data
    chosen = length or min(USUAL, max_length or USUAL, _usual_length(subject) if texts is None else USUAL)
    sizes: dict[str, Any] = {"length": chosen, "count": count, "max_length": max_length, "start": subject.start_token}
    both: dict[str, Any] = {**sizes, "max_source_length": subject.max_source_length}
    if texts is None and subject.pairs is not None:
        return cut_pair_windows(subject.tokenizer, subject.source_tokenizer, subject.pairs, **both)
    read = texts if texts is not None else subject.texts or _default_texts()
    if subject.reads_source and subject.source_tokenizer is not None:
        return cut_pair_windows(subject.tokenizer, subject.source_tokenizer, _with_itself(read), **both)
    data = cut_windows(subject.tokenizer, read, **sizes)
    return replace(data, source_NS=data.ids_NT) if subject.reads_source else data


def describe_origin(subject: Subject, data: Windows, default: bool) -> str:
    """Return whose text the windows are cut from, and what an encoder read beside them, to follow their number."""
    known = " of the text it was trained on" if subject.texts or subject.pairs else " of Python's documentation"
    whose = known if default else ""
    if data.source_NS is None:
        return whose
    return f"{whose}, beside {'what they translate' if default and subject.pairs else 'the same text as source'}"


def _with_itself(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield text as its own translation, line by line, of long lines piece by piece: both sides read the same."""
    for text in texts:
        for line in text.split("\n"):
            for piece in textwrap.wrap(line, PIECE, break_on_hyphens=False):
                yield piece, piece


def _default_texts() -> Sequence[str]:
    """Return English prose that every machine has: the documentation strings of Python's own library."""
    from clockhands.data import open_corpus

    return list(open_corpus("stdlib").documents("train"))


def _usual_length(subject: Subject, sample: int = 200) -> int:
    """Return the length of most texts that a run was trained on: beyond it, its positions were never trained."""
    texts = subject.texts or [target for _, target in (subject.pairs or [])[:sample]]
    if not texts or subject.tokenizer is None:
        return USUAL
    lengths = sorted(len(subject.tokenizer(text)["input_ids"]) for text in texts[:sample])
    return max(SHORTEST_WINDOW, lengths[int(0.9 * (len(lengths) - 1))])
