"""Chooses how to reach a length: every method on a few texts, the better half on more, a search, then a judgement.

The judgement reads text that neither the halving nor the search has seen: what each method costs on short text, how it
reads long ones, in one pass and by its cache, and, of those with the smallest losses, what they find there. A method
passes the guard if its cost on texts of the trained length is shown to be below ``GUARD``. Of those that pass, the one
is chosen that is least behind the best in what it does worse: in its loss on longer texts, or in what it finds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from clockhands.comparison.statistics.paired import Difference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.extension.archive import Archive
from clockhands.extension.measure import choose_lengths
from clockhands.extension.methods import (
    Method,
    apply,
    can_write,
    changes_by_cache,
    explain_left_out,
    find_dependence,
    list_methods,
    read_by_cache,
)
from clockhands.extension.reading import FEWEST_TEXTS, Drift, Stream, cut_texts, measure_drift, measure_losses
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.extension.trial import FINALISTS, Setting, search, try_methods
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

GUARD = 0.01
"""The share of the loss that a method may cost on texts of the trained length; set before anything is measured."""
LONGEST_TAIL = 256
"""Tokens that are scored at the end of each text, at most."""
MOST_ASKED = 4
"""Methods of which recall is measured, those with the smallest loss; it is the dearest part of all."""
RANK_STEP = 0.02
"""What counts as much of the rank as ``GUARD`` does of the loss, if a method is behind by it."""
EQUAL = 0.1
"""Methods that are behind by no more than that share of ``GUARD`` or ``RANK_STEP`` than the best are its equals."""


@dataclass(frozen=True)
class Judged:
    """A method on the text of the judgement.

    Args:
        method: it.
        drift: the loss of the same last tokens by length, the trained one first.
        retrieval: the rank of right values by task, at the same lengths; None where it was not measured.
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

    @property
    def cost_percent(self) -> tuple[float, float, float]:
        """The cost in percent of the loss, and the ends of its interval; only where there is one."""
        assert self.cost is not None
        share = 100 / self.short_loss
        return share * self.cost.value, share * self.cost.low, share * self.cost.high

    @property
    def long_loss(self) -> float:
        """The mean loss over the lengths beyond the trained one; infinite where one cannot be read.

        In one pass or by the cache, whichever is worse.
        """
        readings = [reading for reading in (self.drift, self.cached) if reading is not None]
        loss = max(float(reading.losses_NR[:, 1:].mean()) for reading in readings)
        return loss if np.isfinite(loss) else np.inf

    @property
    def long_rank(self) -> float:
        """The mean rank over the tasks and the lengths beyond the trained one; 0 where it was not measured.

        In one pass or by the cache, whichever is worse.
        """
        readings = [reading for reading in (self.retrieval, self.cached_retrieval) if reading is not None]
        means = [
            float(np.mean([ranks_NR[:, 1:].mean() for ranks_NR in reading.ranks.values()])) for reading in readings
        ]
        return min(means, default=0.0)


def measure_short(model: LanguageModel, stream: Stream, trained: int, texts: int) -> Float[np.ndarray, " N"]:
    """Measure the loss of texts of the trained length, all their tokens but the first."""
    return measure_losses(model, cut_texts(stream, trained, trained - 1, 4 * texts, model.start_ids), trained - 1)


def judge(setting: Setting, methods: Sequence[Method]) -> tuple[Judged, ...]:
    """Measure methods by length and on texts of the trained length; the first leaves the model as it is.

    A method that spares texts of the trained length is not measured there again.
    """
    model, trained, lengths = setting.model, setting.trained, tuple(setting.lengths)
    texts = setting.times * max(FEWEST_TEXTS, setting.texts // 2)
    tail = choose_judged_tail(trained, (len(setting.stream) - setting.longest) // (texts - 1))

    def measure(laid: LanguageModel, key: str, known: Drift | None, count: CountProgress) -> Drift:
        """Measure losses by length; those at the trained length are taken from ``known``."""
        unknown = lengths if known is None else lengths[1:]
        read = partial(measure_drift, laid, setting.stream, unknown, tail=tail, texts=texts, progress=count)
        drift = setting.archive.keep_drift(key, read)
        if known is None:
            return drift
        losses_NR = np.concatenate([known.losses_NR[:, :1], drift.losses_NR], axis=1)
        return replace(drift, lengths=lengths, losses_NR=losses_NR)

    judged: list[Judged] = []
    shorts: list[Float[np.ndarray, " N"]] = []
    for number, method in enumerate(methods):
        key = f"judge/{method.key}/{setting.texts}/{texts}/{tail}/{setting.longest}"
        count = _count_methods(setting.progress, "judging methods", number, len(methods))
        with apply(model, method) as laid:
            if judged and method.spares_short_texts:
                shorts.append(shorts[0])
                drift = measure(laid, f"{key}/beyond", judged[0].drift, count)
            else:
                # Short texts first: in transformers a base that grew with a long text may stay so.
                read = partial(measure_short, laid, setting.stream, trained, setting.texts)
                shorts.append(setting.archive.keep_array(key, read))
                drift = measure(laid, key, None, count)
            cached = None
            if changes_by_cache(model, method):
                with read_by_cache(laid, method, trained):
                    cached = measure(laid, f"{key}/cached", drift, count)
        dependence, loss = find_dependence(model, method), float(shorts[0].mean())
        judged.append(Judged(method, drift, None, None, loss, can_write(model, method), dependence, cached))
    costs = compare_with_baseline([short_N[:, None] for short_N in shorts[1:]], [shorts[0][:, None]] * len(shorts[1:]))
    priced = [replace(entry, cost=cost) for entry, cost in zip(judged, [None, *costs], strict=True)]
    return tuple(_add_retrieval(setting, priced)) if setting.tasks else tuple(priced)


def choose_judged_tail(trained: int, room: int = LONGEST_TAIL) -> int:
    """Return how many last tokens of a text a judgement scores: half the trained length, at most ``room``.

    More tell methods apart better, at hardly any cost.
    """
    return max(4, min(LONGEST_TAIL, trained // 2, room))


def _count_methods(progress: CountProgress, what: str, number: int, methods: int) -> CountProgress:
    """Return the progress of one of several methods as a share of all."""

    def count(part: str, done: int, total: int) -> None:
        progress(what, number * 100 + int(100 * done / max(total, 1)), 100 * methods)

    return count


def list_able(judged: Sequence[Judged]) -> list[Judged]:
    """Return the methods that pass the guard, can be written and read beyond the trained length, the best loss first.

    The model as it is alone, where none can.
    """
    able = [entry for entry in judged if entry.passes and entry.writable]
    readable = [entry for entry in able if np.isfinite(entry.long_loss)]
    return sorted(readable, key=lambda entry: entry.long_loss) or able[:1]


def _add_retrieval(setting: Setting, judged: Sequence[Judged]) -> list[Judged]:
    """Return methods, with the retrieval of the first and of ``MOST_ASKED`` that could be chosen."""
    able = [entry for entry in list_able(judged) if entry is not judged[0]]
    names = [entry.method.name for entry in (judged[0], *able[:MOST_ASKED])]
    writing = choose_writing(setting.model, setting.stream, setting.trained, setting.seed)
    items, completed = setting.times * setting.items, list(judged)
    for place, entry in enumerate(judged):
        if entry.method.name not in names:
            continue
        key = f"judge/{entry.method.key}/{items}/{setting.longest}/{','.join(setting.tasks)}"
        count = _count_methods(setting.progress, "judging recall", names.index(entry.method.name), len(names))
        with apply(setting.model, entry.method) as laid:
            measure = partial(
                measure_retrieval, laid, setting.stream, setting.lengths, writing, items=items, seed=setting.seed,
                tasks=setting.tasks, control=False, progress=count,
            )  # fmt: skip
            whole, cached = setting.archive.keep_retrieval(key, measure), None
            if entry.cached is not None:
                with read_by_cache(laid, entry.method, setting.trained):
                    cached = setting.archive.keep_retrieval(f"{key}/cached", measure)
        completed[place] = replace(entry, retrieval=whole, cached_retrieval=cached)
    return completed


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
    lengths = [length for length in choose_lengths(trained, longest) if length >= trained]
    setting = Setting(
        model, search_stream, lengths, texts, items, tuple(learned), seed, archive or Archive(None), progress
    )
    methods = list_methods(model, trained, longest)
    tried = try_methods(setting, methods)
    # The model as it is, the best that can be written, one that leaves short texts alone, and one of the others.
    ranked = sorted(methods[1:], key=lambda method: (-tried[method.name][1], tried[method.name]))
    finalists = [methods[0], *[method for method in ranked if can_write(model, method)][:FINALISTS]]
    others = [method for method in ranked if method not in finalists]
    finalists += [method for method in others if method.name.endswith("-beyond")][:1]
    finalists += [method for method in others if not can_write(model, method)][:1]
    starts = [np.asarray(method.options["long_factor"]) for method in methods if "long_factor" in method.options]
    if starts and evaluations:
        starts += [np.full(len(starts[0]), longest / trained), np.ones(len(starts[0]))]
        searched, loss, read = search(setting, starts, evaluations)
        tried[searched.name] = (loss, read)
        finalists.append(searched)
    judged = judge(replace(setting, stream=judgement_stream), finalists)
    return Choice(trained, longest, tried, judged, _pick(judged), tuple(learned), explain_left_out(model, methods))


def _pick(judged: Sequence[Judged]) -> Judged:
    """Return the method to write: of those that pass the guard, the one least behind in what it does worse.

    Among equals it is the one that depends least on the length of a call.
    """
    able = list_able(judged)
    losses = {entry.method.name: entry.long_loss for entry in able}
    lags = measure_lags(losses, {entry.method.name: entry.long_rank for entry in able})
    equal = [entry for entry in able if lags[entry.method.name] <= min(lags.values()) + EQUAL]
    return min(equal, key=lambda entry: (entry.dependence, lags[entry.method.name], losses[entry.method.name]))


def measure_lags(losses: Mapping[str, float], ranks: Mapping[str, float]) -> dict[str, float]:
    """Return how far each method is behind the best in what it does worse: ``GUARD`` or ``RANK_STEP`` is one.

    A method without a rank has rank 0; without any ranks the loss alone counts, and where none can read, the rank.
    """
    least, highest = min(losses.values()), max(ranks.values(), default=0.0)
    lags = {}
    for name, loss in losses.items():
        loss_lag = (loss / least - 1) / GUARD if np.isfinite(least) else 0.0
        lags[name] = max(loss_lag, (highest - ranks.get(name, 0.0)) / RANK_STEP)
    return lags
