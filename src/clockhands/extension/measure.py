"""Measures how far a model reads as it is: drift and retrieval at every length, and the usable length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clockhands.errors import UsageError
from clockhands.extension.archive import Archive
from clockhands.extension.drift import Drift, can_read, measure_drift
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.extension.text import Stream
from clockhands.extension.usable import DRIFT_MARGIN, Usable, judge_usable
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count

__all__ = ["Measurement", "choose_lengths", "choose_tail", "measure"]

SHORTEST = 16
"""Tokens of the shortest text: a fact and its question with some context."""


@dataclass(frozen=True)
class Measurement:
    """What was measured of a model as it is."""

    trained: int
    drift: Drift
    retrieval: Retrieval
    usable: Usable


def choose_lengths(trained: int, longest: int) -> tuple[int, ...]:
    """Return the rungs: an eighth of the trained length, doubled up to it and on to ``longest``.

    Raises UsageError for a trained length too short to be divided.
    """
    if trained < 2 * SHORTEST:
        raise UsageError(f"a trained length of {trained} tokens is too short to measure; {2 * SHORTEST} are needed")
    shorter = [trained // part for part in (8, 4, 2) if trained // part >= SHORTEST]
    longer, length = [], trained
    while length < longest:
        longer.append(length)
        length *= 2
    return (*shorter, *longer, max(longest, trained))


def choose_tail(trained: int) -> int:
    """Return how many last tokens are scored for drift: half of the shortest length, from 4 to 64."""
    return max(4, min(64, min(choose_lengths(trained, trained)) // 2))


def measure(
    model: LanguageModel,
    stream: Stream,
    lengths: Sequence[int],
    trained: int,
    *,
    texts: int,
    items: int,
    seed: int = 0,
    margin: float = DRIFT_MARGIN,
    archive: Archive | None = None,
    progress: CountProgress = ignore_count,
) -> Measurement:
    """Measure drift on ``texts`` texts, retrieval on ``items`` questions of each task, and judge the usable length.

    ``archive`` keeps what was measured, so that a stopped measurement goes on.
    Raises UsageError for a model that reads none of the lengths.
    """
    readable = [length for length in lengths if length <= trained and can_read(model, length)]
    if not readable:
        raise UsageError(f"{model.source} reads no text of {min(lengths)} tokens; give its own length with --trained")
    archive = archive or Archive(None)
    rungs = ",".join(map(str, lengths))
    drift = archive.keep_drift(
        f"measure/{texts}/{rungs}",
        lengths,
        lambda: measure_drift(model, stream, lengths, tail=choose_tail(trained), texts=texts, progress=progress),
    )

    def retrieve() -> Retrieval:
        writing = choose_writing(model, stream, max(readable), seed)
        return measure_retrieval(model, stream, lengths, writing, items=items, seed=seed, progress=progress)

    retrieval = archive.keep_retrieval(f"measure/{items}/{rungs}", lengths, retrieve)
    return Measurement(trained, drift, retrieval, judge_usable(drift, retrieval, trained, margin))
