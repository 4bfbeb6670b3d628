"""Judges a few methods on text of their own: what each costs on short text, how it reads long ones, what it finds.

Recall is measured of the methods with the smallest losses among those that pass the guard, and of the model as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.comparison.statistics import Difference
from clockhands.extension.archive import Archive
from clockhands.extension.drift import Drift, measure_drift, measure_losses
from clockhands.extension.measure import choose_lengths
from clockhands.extension.methods import Method, apply, can_write, changes_by_cache, find_dependence, read_by_cache
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.extension.text import Stream, cut_texts, multiply_texts
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

__all__ = ["GUARD", "Judged", "choose_judged_tail", "judge", "list_able"]

GUARD = 0.01
"""The share of the loss that a method may cost on texts of the trained length; set before anything is measured."""
LONGEST_TAIL = 256
"""Tokens that are scored at the end of each text, at most."""
MOST_ASKED = 4
"""Methods of which recall is measured, those with the smallest loss; it is the dearest part of all."""
FEWEST = 8
"""Texts; fewer give no interval that is worth printing."""


@dataclass(frozen=True)
class Judged:
    """A method on the text of the judgement.

    Args:
        method: it.
        drift: the loss of the same last tokens by length.
        retrieval: the rank of right values by task and length; None where it was not measured.
        cost: its loss on texts of the trained length less that of the model as it is, paired; None for the latter.
        short_loss: the loss of the model as it is there.
        writable: whether a folder with it can be opened again; what cannot is never chosen.
        dependence: how its rotation follows the length of a call (``find_dependence``).
        cached, cached_retrieval: the same where the first tokens, as many as a trained text has, are read at once and
            the others one by one with a cache; None where a cache changes nothing.
    """

    method: Method
    drift: Drift
    retrieval: Retrieval | None
    cost: Difference | None
    short_loss: float
    writable: bool = True
    dependence: int = 0
    cached: Drift | None = None
    cached_retrieval: Retrieval | None = None

    @property
    def relative_cost(self) -> float:
        """The cost within the trained length as a share of the loss."""
        return 0.0 if self.cost is None else self.cost.value / self.short_loss

    @property
    def passes(self) -> bool:
        """Whether the cost is shown to be below ``GUARD``."""
        return self.cost is None or self.cost.inner[1] < GUARD * self.short_loss

    def compute_long_loss(self, trained: int) -> float:
        """Return the mean loss over the lengths beyond the trained one; infinite where one cannot be read.

        In one pass or by the cache, whichever is worse.
        """
        beyond = [place for place, length in enumerate(self.drift.lengths) if length > trained]
        readings = [reading for reading in (self.drift, self.cached) if reading is not None]
        loss = max(float(reading.losses_NR[:, beyond].mean()) for reading in readings)
        return loss if np.isfinite(loss) else np.inf

    def compute_long_rank(self, trained: int, tasks: Sequence[str]) -> float:
        """Return the mean rank over the tasks and the lengths beyond the trained one; 0 where it was not measured.

        In one pass or by the cache, whichever is worse.
        """
        readings = [reading for reading in (self.retrieval, self.cached_retrieval) if reading is not None]
        if not readings or not tasks:
            return 0.0
        beyond = [place for place, length in enumerate(readings[0].lengths) if length > trained]
        return min(float(np.mean([reading.ranks[task][:, beyond].mean() for task in tasks])) for reading in readings)


def judge(
    model: LanguageModel,
    methods: Sequence[Method],
    stream: Stream,
    trained: int,
    longest: int,
    *,
    texts: int,
    items: int,
    tasks: Sequence[str],
    seed: int = 0,
    archive: Archive | None = None,
    progress: CountProgress = ignore_count,
) -> tuple[Judged, ...]:
    """Measure methods by length and on texts of the trained length; the first leaves the model as it is.

    Half of ``texts`` are read at every length, and ``choose_judged_tail`` tokens of each are scored; and four times
    ``texts`` of the trained length. A method that spares those is not measured there again. ``tasks``: those of
    retrieval that the model has learned, of each ``items`` questions. Of short texts as many more are read, and asked
    for as much more, as ``multiply_texts`` says.
    """
    archive = archive or Archive(None)
    lengths = [length for length in choose_lengths(trained, longest) if length >= trained]
    times = multiply_texts(model, longest)
    shorts, drifts, cached = _measure_losses_of_all(
        model, methods, stream, lengths, texts, times * max(FEWEST, texts // 2), archive, progress
    )
    costs = compare_with_baseline([short_N[:, None] for short_N in shorts[1:]], [shorts[0][:, None]] * len(shorts[1:]))
    base = float(shorts[0].mean())
    judged = [
        Judged(method, drift, None, cost, base, can_write(model, method), find_dependence(model, method), by_cache)
        for method, drift, cost, by_cache in zip(methods, drifts, [None, *costs], cached, strict=True)
    ]
    return _add_retrieval(model, judged, stream, trained, lengths, times * items, tasks, seed, archive, progress)


def _measure_losses_of_all(
    model: LanguageModel, methods: Sequence[Method], stream: Stream, lengths: Sequence[int], texts: int, count: int,
    archive: Archive, progress: CountProgress,
) -> tuple[list[Float[np.ndarray, " N"]], list[Drift], list[Drift | None]]:  # fmt: skip
    """Measure each method on texts of the shortest length, which is the trained one, and ``count`` texts by length.

    The last are the losses by length of those that read otherwise by a cache, so read.
    """
    trained, longest = lengths[0], lengths[-1]
    tail = choose_judged_tail(trained, (len(stream) - longest) // (count - 1))
    short_NS = cut_texts(stream, trained, trained - 1, 4 * texts, model.start_ids)
    drifts: list[Drift] = []
    shorts: list[Float[np.ndarray, " N"]] = []
    cached: list[Drift | None] = []
    for number, method in enumerate(methods):
        key = f"judge/{method.key}/{texts}/{count}/{tail}/{longest}"
        count_up = _count_methods(progress, "judging methods", number, len(methods))

        def drift(extended: LanguageModel, lengths: Sequence[int], progress: CountProgress = count_up) -> Drift:
            return measure_drift(extended, stream, lengths, tail=tail, texts=count, progress=progress)

        with apply(model, method) as extended:
            if drifts and method.spares_short_texts:
                shorts.append(shorts[0])
                beyond = archive.keep_drift(f"{key}/beyond", lengths[1:], lambda: drift(extended, lengths[1:]))
                drifts.append(_put_before(drifts[0], beyond))
            else:
                # Short texts first: in transformers a base that grew with a long text may stay so.
                shorts.append(archive.keep_array(key, lambda: measure_losses(extended, short_NS, trained - 1)))
                drifts.append(archive.keep_drift(key, lengths, lambda: drift(extended, lengths)))
        cached.append(None)
        if changes_by_cache(model, method):
            with apply(model, method) as extended, read_by_cache(extended, method, trained):
                beyond = archive.keep_drift(f"{key}/cached", lengths[1:], lambda: drift(extended, lengths[1:]))
                cached[-1] = _put_before(drifts[-1], beyond)
    return shorts, drifts, cached


def _put_before(shorter: Drift, beyond: Drift) -> Drift:
    """Return losses by length of which the first are those of another measurement at its first length."""
    losses_NR = np.concatenate([shorter.losses_NR[:, :1], beyond.losses_NR], axis=1)
    return replace(beyond, lengths=(shorter.lengths[0], *beyond.lengths), losses_NR=losses_NR)


def choose_judged_tail(trained: int, room: int = LONGEST_TAIL) -> int:
    """Return how many last tokens of a text a judgement scores: half the trained length, at most ``room``.

    More tell methods apart better, at hardly any cost.
    """
    return max(4, min(LONGEST_TAIL, trained // 2, room))


def list_able(judged: Sequence[Judged], trained: int) -> list[Judged]:
    """Return the methods that pass the guard, can be written and read beyond the trained length, the best loss first.

    The model as it is alone, where none can.
    """
    able = [entry for entry in judged if entry.passes and entry.writable]
    readable = [entry for entry in able if np.isfinite(entry.compute_long_loss(trained))]
    return sorted(readable, key=lambda entry: entry.compute_long_loss(trained)) or able[:1]


def _add_retrieval(
    model: LanguageModel, judged: Sequence[Judged], stream: Stream, trained: int, lengths: Sequence[int], items: int,
    tasks: Sequence[str], seed: int, archive: Archive, progress: CountProgress,
) -> tuple[Judged, ...]:  # fmt: skip
    """Measure the retrieval of ``MOST_ASKED`` methods that could be chosen, and of the first."""
    if not tasks:
        return tuple(judged)
    wanted = [judged[0], *[entry for entry in list_able(judged, trained) if entry is not judged[0]][:MOST_ASKED]]
    writing = choose_writing(model, stream, trained, seed)

    measured = {}
    for number, entry in enumerate(wanted):
        key = f"judge/{entry.method.key}/{items}/{lengths[-1]}/{','.join(tasks)}"
        count_up = _count_methods(progress, "judging recall", number, len(wanted))
        with apply(model, entry.method) as extended:

            def retrieve(extended: LanguageModel = extended, progress: CountProgress = count_up) -> Retrieval:
                return measure_retrieval(
                    extended, stream, lengths, writing, items=items, seed=seed, tasks=tasks, control=False,
                    progress=progress,
                )  # fmt: skip

            whole, cached = archive.keep_retrieval(key, lengths, retrieve), None
            if entry.cached is not None:
                with read_by_cache(extended, entry.method, trained):
                    cached = archive.keep_retrieval(f"{key}/cached", lengths, retrieve)
        measured[entry.method.name] = replace(entry, retrieval=whole, cached_retrieval=cached)
    return tuple(measured.get(entry.method.name, entry) for entry in judged)


def _count_methods(progress: CountProgress, what: str, number: int, methods: int) -> CountProgress:
    """Return the progress of one of several methods as a share of all."""

    def count(part: str, done: int, total: int) -> None:
        progress(what, number * 100 + int(100 * done / max(total, 1)), 100 * methods)

    return count
