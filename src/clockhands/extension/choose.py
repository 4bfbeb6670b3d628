"""Chooses how to reach a length: every method on a few texts, the better half on more, a search, then a judgement.

The judgement reads text that neither the halving nor the search has seen: what each method costs on short text, how it
reads long ones, in one pass and by its cache, and, of those with the smallest losses, what they find there. A method
passes the guard if its cost on texts of the trained length is shown to be below ``GUARD``. Of those that pass, the one
is chosen that is least behind the best in what it does worse: in its loss on longer texts, or in what it finds there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from clockhands.comparison.statistics.paired import Difference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.extension.archive import Archive
from clockhands.extension.attention_methods import Method
from clockhands.extension.measure import choose_lengths
from clockhands.extension.methods import (
    apply,
    can_write,
    changes_by_cache,
    explain_left_out,
    find_dependence,
    list_methods,
    read_by_cache,
)
from clockhands.extension.reading import Drift, Stream, cut_texts, measure_drift, measure_losses, multiply_texts
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.extension.trial import FINALISTS, search, try_methods
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

GUARD = 0.01
"""The share of the loss that a method may cost on texts of the trained length; set before anything is measured."""
LONGEST_TAIL = 256
"""Tokens that are scored at the end of each text, at most."""
MOST_ASKED = 4
"""Methods of which recall is measured, those with the smallest loss; it is the dearest part of all."""
FEWEST = 8
"""Texts; fewer give no interval that is worth printing."""


RANK_STEP = 0.02
"""What counts as much of the rank as ``GUARD`` does of the loss, if a method is behind by it."""
EQUAL = 0.1
"""Methods that are behind by no more than that share of ``GUARD`` or ``RANK_STEP`` than the best are its equals."""


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


@dataclass(frozen=True)
class Setting:
    """On what methods are judged: lengths from the trained one on, text that nothing was chosen by, and how much of it.

    ``texts``: half as many are read at every length, and four times as many of the trained one. ``tasks``: those of
    retrieval that the model has learned, of each ``items`` questions. Of short texts more are read, and more is asked,
    as ``multiply_texts`` says.
    """

    model: LanguageModel
    stream: Stream
    lengths: Sequence[int]
    texts: int
    items: int
    tasks: Sequence[str]
    seed: int = 0
    archive: Archive = field(default_factory=lambda: Archive(None))
    progress: CountProgress = ignore_count

    @property
    def trained(self) -> int:
        """The trained length, which is the shortest."""
        return self.lengths[0]

    @property
    def count(self) -> int:
        """How many texts are read at every length."""
        return multiply_texts(self.model, self.lengths[-1]) * max(FEWEST, self.texts // 2)

    @property
    def tail(self) -> int:
        """How many last tokens of a text are scored."""
        return choose_judged_tail(self.trained, (len(self.stream) - self.lengths[-1]) // (self.count - 1))

    def measure_drift(self, laid: LanguageModel, key: str, plain: Drift | None, count: CountProgress) -> Drift:
        """Measure the losses by length of a model with a method; at the trained length they are those of ``plain``."""
        lengths = self.lengths if plain is None else self.lengths[1:]
        drift = self.archive.keep_drift(
            key,
            lambda: measure_drift(laid, self.stream, lengths, tail=self.tail, texts=self.count, progress=count),
        )
        if plain is None:
            return drift
        losses_NR = np.concatenate([plain.losses_NR[:, :1], drift.losses_NR], axis=1)
        return replace(drift, lengths=tuple(self.lengths), losses_NR=losses_NR)


def judge(setting: Setting, methods: Sequence[Method]) -> tuple[Judged, ...]:
    """Measure methods by length and on texts of the trained length; the first leaves the model as it is.

    A method that spares texts of the trained length is not measured there again.
    """
    model, trained = setting.model, setting.trained
    short_NS = cut_texts(setting.stream, trained, trained - 1, 4 * setting.texts, model.start_ids)
    judged: list[Judged] = []
    shorts: list[Float[np.ndarray, " N"]] = []
    for number, method in enumerate(methods):
        key = f"judge/{method.key}/{setting.texts}/{setting.count}/{setting.tail}/{setting.lengths[-1]}"
        count = _count_methods(setting.progress, "judging methods", number, len(methods))
        with apply(model, method) as laid:
            if judged and method.spares_short_texts:
                shorts.append(shorts[0])
                drift = setting.measure_drift(laid, f"{key}/beyond", judged[0].drift, count)
            else:
                # Short texts first: in transformers a base that grew with a long text may stay so.
                shorts.append(setting.archive.keep_array(key, lambda: measure_losses(laid, short_NS, trained - 1)))
                drift = setting.measure_drift(laid, key, None, count)
            cached = None
            if changes_by_cache(model, method):
                with read_by_cache(laid, method, trained):
                    cached = setting.measure_drift(laid, f"{key}/cached", drift, count)
        dependence = find_dependence(model, method)
        loss = float(shorts[0].mean())
        judged.append(Judged(method, drift, None, None, loss, can_write(model, method), dependence, cached))
    costs = compare_with_baseline([short_N[:, None] for short_N in shorts[1:]], [shorts[0][:, None]] * len(shorts[1:]))
    priced = [replace(entry, cost=cost) for entry, cost in zip(judged, [None, *costs], strict=True)]
    return tuple(_add_retrieval(setting, priced)) if setting.tasks else tuple(priced)


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


def _add_retrieval(setting: Setting, judged: Sequence[Judged]) -> Iterator[Judged]:
    """Yield methods, with the retrieval of the first and of ``MOST_ASKED`` that could be chosen."""
    able = [entry for entry in list_able(judged, setting.trained) if entry is not judged[0]]
    wanted = [entry.method.name for entry in (judged[0], *able[:MOST_ASKED])]
    writing = choose_writing(setting.model, setting.stream, setting.trained, setting.seed)
    items = multiply_texts(setting.model, setting.lengths[-1]) * setting.items
    for entry in judged:
        if entry.method.name not in wanted:
            yield entry
            continue
        key = f"judge/{entry.method.key}/{items}/{setting.lengths[-1]}/{','.join(setting.tasks)}"
        count = _count_methods(setting.progress, "judging recall", wanted.index(entry.method.name), len(wanted))
        with apply(setting.model, entry.method) as laid:
            measure = partial(
                measure_retrieval, laid, setting.stream, setting.lengths, writing, items=items, seed=setting.seed,
                tasks=setting.tasks, control=False, progress=count,
            )  # fmt: skip
            whole, cached = setting.archive.keep_retrieval(key, measure), None
            if entry.cached is not None:
                with read_by_cache(laid, entry.method, setting.trained):
                    cached = setting.archive.keep_retrieval(f"{key}/cached", measure)
        yield replace(entry, retrieval=whole, cached_retrieval=cached)


def _count_methods(progress: CountProgress, what: str, number: int, methods: int) -> CountProgress:
    """Return the progress of one of several methods as a share of all."""

    def count(part: str, done: int, total: int) -> None:
        progress(what, number * 100 + int(100 * done / max(total, 1)), 100 * methods)

    return count


@dataclass(frozen=True)
class Choice:
    """What was tried and what was chosen.

    Args:
        trained, longest: tokens.
        tried: the mean loss over the later half of texts of ``longest`` tokens, of every method in the last round that
            it was in, with the number of texts.
        judged: the finalists, the model as it is first.
        chosen: one of them.
        learned: the tasks by which retrieval was compared.
        left_out: why methods that need another attention were not tried; empty where they were or could not help.
    """

    trained: int
    longest: int
    tried: Mapping[str, tuple[float, int]]
    judged: tuple[Judged, ...]
    chosen: Judged
    learned: tuple[str, ...]
    left_out: str = ""


def choose_method(
    model: LanguageModel,
    search_stream: Stream,
    judgement_stream: Stream,
    trained: int,
    longest: int,
    *,
    texts: int,
    items: int,
    evaluations: int,
    learned: Sequence[str],
    seed: int = 0,
    archive: Archive | None = None,
    progress: CountProgress = ignore_count,
) -> Choice:
    """Try every method, search factors, and judge the best on text of their own.

    ``learned``: the tasks of retrieval that the model is known to have learned. ``archive`` keeps what was measured, so
    that a stopped choice goes on. Raises UsageError for a model whose positions cannot be extended and for streams too
    short.
    """
    archive = archive or Archive(None)
    methods = list_methods(model, trained, longest)
    tried = try_methods(model, methods, search_stream, longest, texts=texts, archive=archive, progress=progress)
    finalists = _choose_finalists(model, methods, tried)
    starts = [np.asarray(method.options["long_factor"]) for method in methods if "long_factor" in method.options]
    if starts and evaluations:
        starts += [np.full(len(starts[0]), longest / trained), np.ones(len(starts[0]))]
        searched, loss, read = search(
            model, starts, search_stream, trained, longest, evaluations, seed=seed, archive=archive, progress=progress
        )
        tried[searched.name] = (loss, read)
        finalists.append(searched)
    lengths = [length for length in choose_lengths(trained, longest) if length >= trained]
    setting = Setting(model, judgement_stream, lengths, texts, items, learned, seed, archive, progress)
    judged = judge(setting, finalists)
    left_out = explain_left_out(model, methods)
    return Choice(trained, longest, tried, judged, _pick(judged, trained, learned), tuple(learned), left_out)


def _choose_finalists(
    model: LanguageModel, methods: Sequence[Method], tried: Mapping[str, tuple[float, int]]
) -> list[Method]:
    """Return the model as it is, the best that can be written, one that leaves short texts alone, one of the others."""
    ranked = sorted(methods[1:], key=lambda method: (-tried[method.name][1], tried[method.name]))
    finalists = [methods[0], *[method for method in ranked if can_write(model, method)][:FINALISTS]]
    others = [method for method in ranked if method not in finalists]
    beyond = [method for method in others if method.name.endswith("-beyond")]
    unwritten = [method for method in others if not can_write(model, method)]
    return [*finalists, *beyond[:1], *unwritten[:1]]


def _pick(judged: Sequence[Judged], trained: int, learned: Sequence[str]) -> Judged:
    """Return the method to write: of those that pass the guard, the one least behind in what it does worse.

    Among equals it is the one that depends least on the length of a call.
    """
    able = list_able(judged, trained)
    losses = {entry.method.name: entry.compute_long_loss(trained) for entry in able}
    ranks = {entry.method.name: entry.compute_long_rank(trained, learned) for entry in able}
    lags = measure_lags(losses, ranks)
    equal = [entry for entry in able if lags[entry.method.name] <= min(lags.values()) + EQUAL]
    return min(equal, key=lambda entry: (entry.dependence, lags[entry.method.name], losses[entry.method.name]))


def measure_lags(losses: Mapping[str, float], ranks: Mapping[str, float]) -> dict[str, float]:
    """Return how far each method is behind the best in what it does worse: ``GUARD`` or ``RANK_STEP`` is one.

    A method without a rank has rank 0; without any ranks the loss alone counts, and where none can read, the rank.
    """
    least, highest = min(losses.values()), max(ranks.values(), default=0.0)
    return {
        name: max((loss / least - 1) / GUARD if np.isfinite(least) else 0.0,
                  (highest - ranks.get(name, 0.0)) / RANK_STEP)
        for name, loss in losses.items()
    }  # fmt: skip
