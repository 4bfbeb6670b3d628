"""Translation: sentences in, sentences out, in their order, however many there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from clockhands.data import encode_texts
from clockhands.data.collate import pad
from clockhands.data.encoding import LONGEST, shortened
from clockhands.errors import UsageError
from clockhands.generation.engines import ENGINES, Decoding, Engine
from clockhands.generation.memory_check import check_memory
from clockhands.runs import Run, open_run

__all__ = ["Search", "Translation", "translate"]

POOL = 32
"""Batches that are sorted by length together: enough for little padding, few enough to stream.

The first pool is one batch and each is twice the one before, so that the first translations come soon.
"""
LARGEST_PENALTY = 100
"""A larger exponent overflows, or makes all scores but the longest text's negligible."""
LENGTH_BUCKET = 16
"""Source lengths are rounded up to a multiple of this to bound the translation; sources of one bound share a batch."""
EXTRA_TOKENS = 50
"""Tokens that a translation may have beyond twice its source's rounded length."""


@dataclass(frozen=True)
class Translation:
    """``score`` is the mean log-probability (natural) of the tokens of ``text``, its end included."""

    source: str
    text: str
    score: float


@dataclass(frozen=True)
class Search:
    """How ``translate`` decodes; from it comes the ``Decoding`` of each batch, for an engine.

    Args:
        beam: hypotheses of each source; 1 is greedy.
        length_penalty: a beam returns the text with the highest log-probability / tokens ** ``length_penalty``.
        batch: sources at a time.
        max_length: most tokens of a translation; None: 2 · (source tokens, rounded up to a multiple of 16) + 50.
        engine: a name of ``ENGINES``: ``clockhands`` takes every model, ``ctranslate2`` is faster and takes fewer.
        compute_type: of the engine's matrix products: float32, int8, bfloat16, ...
        max_source: tokens of a source that are read; longer ones are cut, with a ClockhandsWarning that counts them.
            ``evaluate`` cuts references to as many tokens when it measures their loss.

    Raises UsageError for values out of range, an unknown engine, and options that the engine does not take.
    """

    beam: int = 1
    length_penalty: float = 1.0
    batch: int = 64
    max_length: int | None = None
    engine: str = "clockhands"
    compute_type: str = "float32"
    max_source: int = LONGEST

    def __post_init__(self) -> None:
        for name in ("beam", "batch", "max_length", "max_source"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")
        if not math.isfinite(self.length_penalty) or abs(self.length_penalty) > LARGEST_PENALTY:
            raise UsageError(
                f"length_penalty is {self.length_penalty}; it must be from -{LARGEST_PENALTY} to {LARGEST_PENALTY}"
            )
        if self.beam == 1 and self.length_penalty != 1:
            raise UsageError(
                f"length_penalty is {self.length_penalty}, but beam is 1: it is for a search among several; "
                "give --beam 4, or leave it out"
            )
        ENGINES[self.engine].refuse_options(self.compute_type)

    def make_engine(self, run: Run) -> Engine:
        """Make the engine for a run. Raises UsageError if the engine cannot be had, or cannot take its model."""
        return ENGINES[self.engine](run.model, self.compute_type)


def translate(run: str | Path | Run, sources: Iterable[str], search: Search | None = None) -> Iterator[Translation]:
    """Translate one sentence after the other; lazily, so that a file of any size or a pipe can be given.

    An empty sentence has an empty translation. Raises UsageError if the run does not translate or the engine cannot
    take its model, at the call; for a batch that does not fit the memory, when its first translation is asked for.
    """
    run = open_run(run)
    run.require("encoder-decoder", "translate")
    search = search or Search()
    return _translate_stream(run, search.make_engine(run), iter(sources), search)


def _translate_stream(run: Run, engine: Engine, stream: Iterator[str], search: Search) -> Iterator[Translation]:
    """Yield the translations of a stream, in pools that grow up to ``POOL`` batches."""
    batches = 1
    while pool := list(islice(stream, search.batch * batches)):
        yield from _translate_pool(run, engine, pool, search)
        batches = min(2 * batches, POOL)


def _translate_pool(run: Run, engine: Engine, pool: list[str], search: Search) -> list[Translation]:
    """Translate in batches of similar lengths, and return the translations in the order of their sources."""
    nonempty = [index for index, source in enumerate(pool) if source.strip()]
    encoded = encode_texts(run.tokenizers.source, [pool[i] for i in nonempty])
    ids = dict(zip(nonempty, shortened(encoded, search.max_source, "max_source"), strict=True))
    done = {index: Translation(source, "", 0.0) for index, source in enumerate(pool)}
    order = sorted(nonempty, key=lambda index: len(ids[index]))
    # One bound for all of a batch: a translation that does not end must not depend on the sentences beside it.
    batches = [
        (bound, indices)
        for bound, alike in groupby(order, key=lambda index: _bound_length(len(ids[index]), search))
        for indices in _split(alike, search.batch)
    ]
    for _, indices in batches:
        _check_memory(run, [ids[index] for index in indices], search)
    for bound, indices in batches:
        texts, scores = _translate_batch(run, engine, [ids[index] for index in indices], bound, search)
        rows = zip(indices, texts, scores, strict=True)
        done |= {index: Translation(pool[index], text, score) for index, text, score in rows}
    return [done[index] for index in range(len(pool))]


def _bound_length(tokens: int, search: Search) -> int:
    """Return how many tokens the translation of a source of ``tokens`` tokens may have."""
    return search.max_length or 2 * LENGTH_BUCKET * math.ceil(tokens / LENGTH_BUCKET) + EXTRA_TOKENS


def _split(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield the items in lists of ``size``; the last may be shorter."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def _check_memory(run: Run, rows: list[list[int]], search: Search) -> None:
    """Raise UsageError if a batch does not fit the memory even if each translation is only as long as its source."""
    source = max(map(len, rows))
    length = min(source, search.max_length or source)
    advice = "--batch" if search.beam == 1 else "--beam or --batch"
    check_memory(run.model, batch=len(rows), beam=search.beam, length=length, source=source, advice=advice)


def _translate_batch(
    run: Run, engine: Engine, rows: list[list[int]], bound: int, search: Search
) -> tuple[list[str], list[float]]:
    """Translate sources that are given as token ids; return texts, and mean log-probabilities of their tokens."""
    padding = run.tokenizers.source.pad_token_id
    ids_BT, mask_BT = pad([np.asarray(row, dtype=np.int32) for row in rows], padding)
    device = run.model.device
    decoding = Decoding(bound, search.beam, search.length_penalty)
    outputs = engine.write(ids_BT.to(device), mask_BT.to(device).bool(), decoding)
    tokens = [text.tokens for text in outputs]
    texts: list[str] = run.tokenizers.target.batch_decode(tokens, skip_special_tokens=True)
    return texts, [text.log_probability / len(text.tokens) for text in outputs]
