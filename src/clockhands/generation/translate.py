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
from clockhands.errors import UsageError, unknown
from clockhands.generation.ctranslate import EngineDecoder
from clockhands.generation.decode import Decoder
from clockhands.generation.room import check_room
from clockhands.runs import Run, open_run

# Batches that are sorted by length together: enough for little padding, few enough to stream. The first pool is one
# batch and each is twice the one before, so that the first translations come soon.
POOL = 32
LARGEST_PENALTY = 100
"""With a larger exponent every length but one is nothing beside the others, or overflows."""
# Sources whose lengths lie in the same step of so many tokens share a batch.
STEP = 16
ENGINES = ("clockhands", "ctranslate2")
Writer = Decoder | EngineDecoder


@dataclass(frozen=True)
class Translation:
    """``score`` is the mean log-probability (natural) of the tokens of ``text``, its end included."""

    source: str
    text: str
    score: float


@dataclass(frozen=True)
class Search:
    """How to decode. ``beam`` 1 is greedy; ``length_penalty`` is the exponent of the length that divides its score.

    ``max_length`` bounds the tokens of a translation; if it is not given, the bound is twice the tokens of the source,
    counted in steps of 16, and 50 more. A source of more than ``max_source`` tokens is cut there, with a
    ClockhandsWarning that counts those. ``engine``: our
    own decoder, which takes every model, or ``ctranslate2``, which takes less time and fewer models (``ctranslate.py``)
    and multiplies in the ``compute_type``: float32, int8, bfloat16, ...
    """

    beam: int = 1
    length_penalty: float = 1.0
    batch: int = 64
    max_length: int | None = None
    engine: str = ENGINES[0]
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
        if self.engine not in ENGINES:
            raise UsageError(unknown("engine", self.engine, ENGINES))
        if self.engine == "clockhands" and self.compute_type != "float32":
            raise UsageError(
                f"compute_type is {self.compute_type!r}, but our own decoder computes in the type of the weights; "
                "it is for the engine ctranslate2"
            )

    def decoder(self, opened: Run) -> Writer:
        """What searches so. Raises UsageError if the engine cannot be had, or cannot take this model."""
        ours = self.engine == "clockhands"
        return Decoder(opened.model) if ours else EngineDecoder(opened.model, self.compute_type)


def translate(run: str | Path | Run, sources: Iterable[str], search: Search | None = None) -> Iterator[Translation]:
    """Translate one sentence after the other; lazily, so that a file of any size or a pipe can be given.

    Raises UsageError if the run does not translate. An empty sentence has an empty translation.
    """
    opened = open_run(run)
    opened.require("encoder-decoder", "translate")
    search = search or Search()
    stream = iter(sources)
    decoder = search.decoder(opened)
    batches = 1
    while pool := list(islice(stream, search.batch * batches)):
        yield from _pool(opened, decoder, pool, search)
        batches = min(2 * batches, POOL)


def _pool(opened: Run, decoder: Writer, pool: list[str], search: Search) -> list[Translation]:
    """Batches of like lengths, put back in order."""
    wanted = [index for index, source in enumerate(pool) if source.strip()]
    encoded = encode_texts(opened.tokenizers.source, [pool[i] for i in wanted])
    ids = dict(zip(wanted, shortened(encoded, search.max_source, "max_source"), strict=True))
    done = {index: Translation(source, "", 0.0) for index, source in enumerate(pool)}
    order = sorted(wanted, key=lambda index: len(ids[index]))
    # One bound for all of a batch: a translation that does not end must not depend on the sentences beside it.
    batches = [
        (bound, indices)
        for bound, alike in groupby(order, key=lambda index: _bound(len(ids[index]), search))
        for indices in _batched(alike, search.batch)
    ]
    for _, indices in batches:
        _check_room(opened, [ids[index] for index in indices], search)
    for bound, indices in batches:
        texts, scores = _batch(opened, decoder, [ids[index] for index in indices], bound, search)
        rows = zip(indices, texts, scores, strict=True)
        done |= {index: Translation(pool[index], text, score) for index, text, score in rows}
    return [done[index] for index in range(len(pool))]


def _bound(tokens: int, search: Search) -> int:
    """Return how many tokens the translation of a source of ``tokens`` tokens may have."""
    return search.max_length or 2 * STEP * -(-tokens // STEP) + 50


def _batched(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield the items in lists of ``size``; the last may be shorter."""
    stream = iter(items)
    while batch := list(islice(stream, size)):
        yield batch


def _check_room(opened: Run, rows: list[list[int]], search: Search) -> None:
    """Raise UsageError if a batch does not fit the memory even if each translation is only as long as its source."""
    source = max(map(len, rows))
    length = min(source, search.max_length or source)
    advice = "--batch" if search.beam == 1 else "--beam or --batch"
    check_room(opened.model, rows=len(rows) * search.beam, length=length, source=source, advice=advice)


def _batch(
    opened: Run, decoder: Writer, rows: list[list[int]], longest: int, search: Search
) -> tuple[list[str], list[float]]:
    tokenizer = opened.tokenizers.target
    ids_BT, mask_BT = pad([np.asarray(row, dtype=np.int32) for row in rows], opened.tokenizers.source.pad_token_id)
    device = opened.model.device
    written = decoder(
        ids_BT.to(device),
        mask_BT.to(device).bool(),
        longest=longest,
        beam=search.beam,
        length_penalty=search.length_penalty,
    )
    texts: list[str] = tokenizer.batch_decode([one.words for one in written], skip_special_tokens=True)
    return texts, [one.log_probability / len(one.words) for one in written]
