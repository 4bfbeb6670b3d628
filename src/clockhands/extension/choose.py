"""Chooses how to reach a length: every method on a few texts, the better half on more, a search, then a judgement.

A trial scores all tokens of the later half of a text, so that a few texts tell methods apart.
The judgement reads text that neither the halving nor the search has seen: what each method costs on short text, how it
reads long ones, in one pass and by its cache, and, of those with the smallest losses, what they find there. A method
passes the guard if its cost on texts of the trained length is shown to be below ``GUARD``. Of those that pass, the one
is chosen that is least behind the best in what it does worse: in its loss on longer texts, or in what it finds there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from clockhands.comparison.statistics.paired import PairedDifference
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
    make_longrope,
    read_by_cache,
)
from clockhands.extension.reading import (
    FEWEST_TEXTS,
    Drift,
    Stream,
    cut_texts,
    measure_drift,
    measure_losses,
    multiply_texts,
)
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float, Int

Factors = Float[np.ndarray, " F"]
POPULATION = 8
"""Factors that are kept, and that are made from them, in every round of the search."""
FIRST_TEXTS = 2
"""Texts on which every method is tried, or so many times as many as ``multiply_texts`` says."""
FINALISTS = 4
"""Methods that are judged besides the model as it is and what the search found."""
SEARCH_TEXTS = 4
"""Texts that a candidate of the search reads, unless the first shows that it is none of the best; or as many groups."""
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
class Setting:
    """On what methods are tried or judged: lengths from the trained one on, a text, and how much of it.

    ``texts``: at most so many are read in a trial, half as many at every length of a judgement, and four times as many
    of the trained one. ``tasks``: those of retrieval that the model has learned, of each ``items`` questions.
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
        """The trained length, the shortest."""
        return self.lengths[0]

    @property
    def longest(self) -> int:
        """The longest length."""
        return self.lengths[-1]

    @property
    def times(self) -> int:
        """How many times as many texts and questions there are where model and texts are small."""
        return multiply_texts(self.model, self.longest)


def cut_trial_texts(
    model: LanguageModel, stream: Stream, longest: int, count: int
) -> tuple[Int[np.ndarray, "N S"], int]:
    """Cut texts of ``longest`` tokens, and return how many of their last tokens are scored.

    Half of them; fewer where the stream is short. Raises UsageError where not even a few are left for each.
    """
    own = longest - len(model.start_ids)
    tail = min(longest // 2, (len(stream) - own) // (FEWEST_TEXTS - 1))
    return cut_texts(stream, longest, max(tail, 0), count, model.start_ids), tail


def _try_methods(setting: Setting, methods: Sequence[Method]) -> dict[str, tuple[float, int]]:
    """Return of every method the mean loss in the last round that it was in, with the number of its texts.

    Successive halving: all methods on ``FIRST_TEXTS``, the better half on twice as many, until ``FINALISTS`` are left.
    """
    model, longest = setting.model, setting.longest
    tried: dict[str, tuple[float, int]] = {}
    rivals, count = list(methods), FIRST_TEXTS
    while len(rivals) > FINALISTS and count <= setting.texts:
        texts_NS, tail = cut_trial_texts(model, setting.stream, longest, setting.times * count)
        read = len(texts_NS)
        for number, method in enumerate(rivals):
            setting.progress(f"trying methods on {read} texts", number, len(rivals))
            key = f"try/{method.key}/{read}/{longest}"
            tried[method.name] = (_measure_mean(setting, key, method, texts_NS, tail), read)
        rivals.sort(key=lambda method: tried[method.name][0])
        rivals, count = rivals[: max(FINALISTS, -(-len(rivals) // 2))], 2 * count
    return tried


def search(setting: Setting, starts: Sequence[Factors], evaluations: int) -> tuple[Method, float, int]:
    """Search the factors of LongRoPE, and return the best as a method, with its loss and the texts of that."""
    longest, factor = setting.longest, setting.longest / setting.trained
    texts_NS, tail = cut_trial_texts(setting.model, setting.stream, longest, SEARCH_TEXTS * setting.times)
    groups = min(SEARCH_TEXTS, len(texts_NS))

    def make(factors_F: Factors) -> Method:
        what = "factors found by search, beyond the trained length"
        return make_longrope("searched", what, tuple(map(float, factors_F)), setting.trained, factor)

    def measure(factors_F: Factors, group: int) -> float:
        name, group_NS = ",".join(f"{value:.6g}" for value in factors_F), texts_NS[group::groups]
        key = f"search/{name}/{group}/{len(group_NS)}/{longest}"
        return _measure_mean(setting, key, make(factors_F), group_NS, tail)

    best_F, loss = search_factors(
        measure, starts, factor, evaluations, texts=groups, seed=setting.seed, progress=setting.progress
    )
    return make(best_F), loss, len(texts_NS)


def _measure_mean(setting: Setting, key: str, method: Method, texts_NS: Int[np.ndarray, "N S"], tail: int) -> float:
    """Return the mean loss of the last tokens under a method; infinite where the model cannot read so far."""

    def measure() -> float:
        with apply(setting.model, method) as extended:
            if extended.max_length is not None and texts_NS.shape[1] > extended.max_length:
                return np.inf
            return float(measure_losses(extended, texts_NS, tail).mean())

    return float(setting.archive.keep(key, measure))


def search_factors(
    measure: Callable[[Factors, int], float],
    seeds: Sequence[Factors],
    factor: float,
    evaluations: int,
    *,
    texts: int = 1,
    seed: int = 0,
    progress: CountProgress = ignore_count,
) -> tuple[Factors, float]:
    """Search the factors with the smallest loss, and return them with their mean loss.

    Args:
        measure: returns the loss of a model under factors on one text, by its number.
        seeds: factors to begin with; they are evaluated first.
        factor: how many times longer the texts are; factors are at most twice that.
        evaluations: factors that are tried at most, the seeds included.
        texts: that each reads.
        seed: of the random changes.
    """
    rng = np.random.default_rng(seed)
    tried: list[tuple[float, Factors, list[float]]] = []  # score, factors, and their loss on each text that they read

    def attempt(factors_F: Factors) -> None:
        """Measure factors on the first text, and on the others unless the last of the parents beats them there."""
        # At least 1, at most twice the extension, and never falling from fast hands to slow.
        factors_F = np.maximum.accumulate(np.clip(factors_F, 1.0, 2 * factor))
        losses, ranked = [measure(factors_F, 0)], sorted(tried, key=lambda entry: entry[0])
        score, _, parent = ranked[POPULATION - 1] if len(ranked) >= POPULATION else (0.0, factors_F, losses)
        if losses[0] > parent[0]:  # given up: that parent's score, more by what they lose to it on the first text
            score += losses[0] - parent[0]
        else:
            losses += [measure(factors_F, text) for text in range(1, texts)]
            score = float(np.mean(losses))
        tried.append((score, factors_F, losses))
        progress("searching factors", len(tried), evaluations)

    for start_F in list(seeds)[:evaluations]:
        attempt(np.asarray(start_F))
    while len(tried) < evaluations:
        parents = [factors_F for _, factors_F, _ in sorted(tried, key=lambda entry: entry[0])[:POPULATION]]
        for _ in range(min(POPULATION, evaluations - len(tried))):
            # The mean of two parents in the logarithm, or one of them, with some neighbouring factors changed.
            first, second = rng.integers(len(parents), size=2)
            share = rng.choice([0.0, 0.5])
            child_F: Factors = np.exp((1 - share) * np.log(parents[first]) + share * np.log(parents[second]))
            centre, width = rng.uniform(0, len(child_F)), rng.uniform(0.5, len(child_F) / 3 + 0.5)
            bump_F = np.exp(-0.5 * ((np.arange(len(child_F)) - centre) / width) ** 2)
            attempt(child_F * np.exp(rng.normal(0, 0.35) * bump_F))
    loss, best_F, _ = min(tried, key=lambda entry: entry[0])
    return best_F, loss


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
    cost: PairedDifference | None
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
        """The mean loss beyond the trained length, in one pass or by the cache, whichever is worse.

        Infinite where a length cannot be read.
        """
        readings = [reading for reading in (self.drift, self.cached) if reading is not None]
        losses = [float(reading.losses_NR[:, 1:].mean()) for reading in readings]
        return max(losses) if np.isfinite(losses).all() else np.inf

    @property
    def long_rank(self) -> float:
        """The mean rank over tasks beyond the trained length, as ``long_loss``; 0 where it was not measured."""
        readings = [reading for reading in (self.retrieval, self.cached_retrieval) if reading is not None]
        ranks = [[ranks_NR[:, 1:].mean() for ranks_NR in reading.ranks.values()] for reading in readings]
        return float(min(map(np.mean, ranks), default=0.0))


def measure_short(model: LanguageModel, stream: Stream, trained: int, texts: int) -> Float[np.ndarray, " N"]:
    """Measure the loss of texts of the trained length, all their tokens but the first."""
    return measure_losses(model, cut_texts(stream, trained, trained - 1, 4 * texts, model.start_ids), trained - 1)


def judge(setting: Setting, methods: Sequence[Method]) -> tuple[Judged, ...]:
    """Measure methods by length and on texts of the trained length; the first leaves the model as it is."""
    model, trained, lengths = setting.model, setting.trained, tuple(setting.lengths)
    texts = setting.times * max(FEWEST_TEXTS, setting.texts // 2)
    tail = choose_judged_tail(trained, (len(setting.stream) - setting.longest) // (texts - 1))

    def measure(laid: LanguageModel, key: str, known: Drift | None) -> Drift:
        """Measure losses by length; those at the trained length are taken from ``known``."""
        unknown = lengths if known is None else lengths[1:]
        count = _count_methods(setting.progress, "judging methods", len(judged), len(methods))
        read = partial(measure_drift, laid, setting.stream, unknown, tail=tail, texts=texts, progress=count)
        drift = setting.archive.keep_drift(key, read)
        if known is None:
            return drift
        losses_NR = np.concatenate([known.losses_NR[:, :1], drift.losses_NR], axis=1)
        return replace(drift, lengths=lengths, losses_NR=losses_NR)

    judged: list[Judged] = []
    shorts: list[Float[np.ndarray, " N"]] = []
    for method in methods:
        key = f"judge/{method.key}/{setting.texts}/{texts}/{tail}/{setting.longest}"
        with apply(model, method) as laid:
            if judged and method.spares_short_texts:  # it reads them as the model as it is does
                shorts.append(shorts[0])
                drift = measure(laid, f"{key}/beyond", judged[0].drift)
            else:
                # Short texts first: in transformers a base that grew with a long text may stay so.
                read = partial(measure_short, laid, setting.stream, trained, setting.texts)
                shorts.append(setting.archive.keep_array(key, read))
                drift = measure(laid, key, None)
            cached = None
            if changes_by_cache(model, method):
                with read_by_cache(laid, method, trained):
                    cached = measure(laid, f"{key}/cached", drift)
        known = can_write(model, method), find_dependence(model, method)
        judged.append(Judged(method, drift, None, None, float(shorts[0].mean()), *known, cached))
    costs = compare_with_baseline([short_N[:, None] for short_N in shorts[1:]], [shorts[0][:, None]] * len(shorts[1:]))
    priced = tuple(replace(entry, cost=cost) for entry, cost in zip(judged, [None, *costs], strict=True))
    return _add_retrieval(setting, priced) if setting.tasks else priced


def choose_judged_tail(trained: int, room: int = LONGEST_TAIL) -> int:
    """Return how many last tokens of a text a judgement scores: half the trained length, at most ``room``."""
    return max(4, min(LONGEST_TAIL, trained // 2, room))


def _count_methods(progress: CountProgress, what: str, number: int, methods: int) -> CountProgress:
    """Return the progress of one of several methods as a share of all."""

    def count(part: str, done: int, total: int) -> None:
        progress(what, number * 100 + int(100 * done / max(total, 1)), 100 * methods)

    return count


def list_able(judged: Sequence[Judged]) -> list[Judged]:
    """Return what passes the guard, can be written and reads further, the best first; else the model as it is."""
    able = [entry for entry in judged if entry.passes and entry.writable]
    readable = [entry for entry in able if np.isfinite(entry.long_loss)]
    return sorted(readable, key=lambda entry: entry.long_loss) or able[:1]


def _add_retrieval(setting: Setting, judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """Return methods, with the retrieval of the first and of ``MOST_ASKED`` that could be chosen."""
    able = [entry for entry in list_able(judged) if entry is not judged[0]]
    measured = [judged[0], *able[:MOST_ASKED]]
    writing = choose_writing(setting.model, setting.stream, setting.trained, setting.seed)
    items, completed = setting.times * setting.items, {entry.method.name: entry for entry in judged}
    for number, entry in enumerate(measured):
        key = f"judge/{entry.method.key}/{items}/{setting.longest}/{','.join(setting.tasks)}"
        count = _count_methods(setting.progress, "judging recall", number, len(measured))
        with apply(setting.model, entry.method) as laid:
            measure = partial(
                measure_retrieval, laid, setting.stream, setting.lengths, writing, items=items, seed=setting.seed,
                tasks=setting.tasks, control=False, progress=count,
            )  # fmt: skip
            whole, cached = setting.archive.keep_retrieval(key, measure), None
            if entry.cached is not None:
                with read_by_cache(laid, entry.method, setting.trained):
                    cached = setting.archive.keep_retrieval(f"{key}/cached", measure)
        completed[entry.method.name] = replace(entry, retrieval=whole, cached_retrieval=cached)
    return tuple(completed.values())


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

    ``learned``: the tasks of retrieval that the model is known to have learned. ``archive`` keeps what was measured.
    Raises UsageError for a model whose positions cannot be extended and for streams too short.
    """
    lengths = [length for length in choose_lengths(trained, longest) if length >= trained]
    archive = archive or Archive(None)
    setting = Setting(model, search_stream, lengths, texts, items, tuple(learned), seed, archive, progress)
    methods = list_methods(model, trained, longest)
    tried = _try_methods(setting, methods)
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
    """Return the method to write: of those least behind in what they do worse, the least dependent on call length."""
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
