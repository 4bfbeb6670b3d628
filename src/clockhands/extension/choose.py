"""Chooses how to reach a length: every method on a few texts, the better half on more, a search, then a judgement.

The judgement reads text that neither the halving nor the search has seen. A method passes the guard if its cost on
texts of the trained length is shown to be below ``GUARD``; of those that pass, the one with the smallest loss on
longer texts is chosen, and among those within ``GUARD`` of it the one that finds the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clockhands.comparison.simultaneous import compare_with_baseline
from clockhands.comparison.statistics import Difference
from clockhands.extension.archive import Archive
from clockhands.extension.drift import Drift, can_read, measure_drift, measure_losses
from clockhands.extension.factor_search import search_factors
from clockhands.extension.facts import Writing
from clockhands.extension.measure import choose_lengths, choose_tail
from clockhands.extension.methods import Method, apply, find_rope, list_methods, make_longrope
from clockhands.extension.retrieval import Retrieval, choose_writing, measure_retrieval
from clockhands.extension.text import Stream, cut_texts
from clockhands.progress import CountProgress, ignore_count
from clockhands.runs import LanguageModel

__all__ = ["GUARD", "Choice", "Judged", "choose_method"]

GUARD = 0.01
"""The share of the loss that a method may cost on texts of the trained length; set before anything is measured."""
FIRST_TEXTS = 8
"""Texts on which every method is tried."""
FINALISTS = 4
"""Methods that are judged besides the model as it is and what the search found."""
SEARCH_TEXTS = 6
"""Texts that every candidate of the search reads."""
ALPHA = 0.05


@dataclass(frozen=True)
class Judged:
    """A method on the text of the judgement.

    Args:
        method: it.
        drift: the loss of the same last tokens by length.
        retrieval: the rank of right values by task and length.
        cost: its loss on texts of the trained length less that of the model as it is, paired; None for the latter.
        short_loss: the loss of the model as it is there.
    """

    method: Method
    drift: Drift
    retrieval: Retrieval
    cost: Difference | None
    short_loss: float

    @property
    def relative_cost(self) -> float:
        """The cost within the trained length as a share of the loss."""
        return 0.0 if self.cost is None else self.cost.value / self.short_loss

    @property
    def passes(self) -> bool:
        """Whether the cost is shown to be below ``GUARD``."""
        return self.cost is None or self.cost.inner[1] < GUARD * self.short_loss

    def compute_long_loss(self, trained: int) -> float:
        """Return the mean loss over the lengths beyond the trained one; infinite where one cannot be read."""
        beyond = [place for place, length in enumerate(self.drift.lengths) if length > trained]
        loss = float(self.drift.losses_NR[:, beyond].mean())
        return loss if np.isfinite(loss) else np.inf

    def compute_long_rank(self, trained: int, tasks: Sequence[str]) -> float:
        """Return the mean rank over the tasks and the lengths beyond the trained one."""
        beyond = [place for place, length in enumerate(self.retrieval.lengths) if length > trained]
        return float(np.mean([self.retrieval.ranks[task][:, beyond].mean() for task in tasks])) if tasks else 0.0


@dataclass(frozen=True)
class Choice:
    """What was tried and what was chosen.

    Args:
        trained, longest: tokens.
        tried: the mean loss at ``longest`` of every method in the last round that it was in, with its texts.
        judged: the finalists, the model as it is first.
        chosen: one of them.
        learned: the tasks by which retrieval was compared.
    """

    trained: int
    longest: int
    tried: Mapping[str, tuple[float, int]]
    judged: tuple[Judged, ...]
    chosen: Judged
    learned: tuple[str, ...]


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
    tail = choose_tail(trained)
    tried = _halve(model, methods, search_stream, longest, tail, texts, archive, progress)
    ranked = sorted((method for method in methods[1:]), key=lambda method: (-tried[method.name][1], tried[method.name]))
    finalists = [methods[0], *ranked[:FINALISTS]]
    beyond = [method for method in methods if method.name.endswith("-beyond") and method not in finalists]
    finalists += beyond[:1]
    if find_rope(model) is not None and evaluations:
        searched, loss = _search(
            model, methods, search_stream, trained, longest, tail, evaluations, seed, archive, progress
        )
        tried[searched.name] = (loss, SEARCH_TEXTS)
        finalists.append(searched)
    writing = choose_writing(model, search_stream, trained, seed)
    judged = _judge(
        model, finalists, judgement_stream, trained, longest, tail, texts, items, writing, seed, archive, progress
    )
    return Choice(trained, longest, tried, judged, _pick(judged, trained, learned), tuple(learned))


def _measure(model: LanguageModel, method: Method, texts_NS: np.ndarray, tail: int) -> float:
    """Return the mean loss of the last tokens under a method; infinite where the model cannot read so far."""
    with apply(model, method) as extended:
        if not can_read(extended, texts_NS.shape[1]):
            return np.inf
        return float(measure_losses(extended, texts_NS, tail).mean())


def _halve(
    model: LanguageModel, methods: Sequence[Method], stream: Stream, longest: int, tail: int, texts: int,
    archive: Archive, progress: CountProgress,
) -> dict[str, tuple[float, int]]:  # fmt: skip
    """Measure all methods on few texts, the better half on twice as many, until ``FINALISTS`` are left."""
    tried: dict[str, tuple[float, int]] = {}
    rivals, count = list(methods), FIRST_TEXTS
    while True:
        texts_NS = cut_texts(stream, longest, tail, count, model.start)
        for number, method in enumerate(rivals):
            progress(f"trying methods on {len(texts_NS)} texts", number, len(rivals))

            def measure(method: Method = method, texts_NS: np.ndarray = texts_NS) -> float:
                return _measure(model, method, texts_NS, tail)

            tried[method.name] = (archive.keep(f"try/{method.name}/{count}/{longest}", measure), count)
        rivals.sort(key=lambda method: tried[method.name][0])
        if len(rivals) <= FINALISTS or count >= texts:
            return tried
        rivals, count = rivals[: max(FINALISTS, -(-len(rivals) // 2))], 2 * count


def _search(
    model: LanguageModel, methods: Sequence[Method], stream: Stream, trained: int, longest: int, tail: int,
    evaluations: int, seed: int, archive: Archive, progress: CountProgress,
) -> tuple[Method, float]:  # fmt: skip
    """Search the factors of LongRoPE on the texts of the halving."""
    texts_NS = cut_texts(stream, longest, tail, SEARCH_TEXTS, model.start)
    factor = longest / trained
    starts = [np.asarray(method.options["long_factor"]) for method in methods if "long_factor" in method.options]
    starts += [np.full(len(starts[0]), factor), np.ones(len(starts[0]))]

    def make(factors_F: np.ndarray) -> Method:
        return make_longrope(
            "searched", "factors found by search, beyond the trained length", tuple(map(float, factors_F)), trained,
            factor,
        )  # fmt: skip

    def measure(factors_F: np.ndarray) -> float:
        name = ",".join(f"{value:.6g}" for value in factors_F)
        return archive.keep(f"search/{name}/{longest}", lambda: _measure(model, make(factors_F), texts_NS, tail))

    best_F, loss = search_factors(measure, starts, factor, evaluations, seed=seed, progress=progress)
    return make(best_F), loss


def _judge(
    model: LanguageModel, finalists: Sequence[Method], stream: Stream, trained: int, longest: int, tail: int,
    texts: int, items: int, writing: Writing, seed: int, archive: Archive, progress: CountProgress,
) -> tuple[Judged, ...]:  # fmt: skip
    """Measure the finalists on text of their own: by length, and on texts of the trained length."""
    lengths = [length for length in choose_lengths(trained, longest) if length >= trained]
    short_NS = cut_texts(stream, trained, trained - 1, 4 * texts, model.start)
    drifts, retrievals, shorts = [], [], []
    for number, method in enumerate(finalists):

        def count(what: str, done: int, total: int, number: int = number) -> None:
            progress("judging methods", number * 100 + int(100 * done / max(total, 1)), 100 * len(finalists))

        with apply(model, method) as extended:
            key = f"judge/{method.name}/{texts}/{items}/{longest}/{_name_options(method)}"
            # Short texts first: in transformers a base that grew with a long text may stay so.
            shorts.append(archive.keep_array(key, lambda: measure_losses(extended, short_NS, trained - 1)))
            drifts.append(
                archive.keep_drift(
                    key, lambda: measure_drift(extended, stream, lengths, tail=tail, texts=texts, progress=count)
                )
            )
            retrievals.append(
                archive.keep_retrieval(
                    key,
                    lambda: measure_retrieval(
                        extended, stream, lengths, writing, items=items, seed=seed, control=False, progress=count
                    ),
                )
            )
    costs = compare_with_baseline([short_N[:, None] for short_N in shorts[1:]], [shorts[0][:, None]] * len(shorts[1:]))
    base = float(shorts[0].mean())
    return tuple(
        Judged(method, drift, retrieval, cost, base)
        for method, drift, retrieval, cost in zip(finalists, drifts, retrievals, [None, *costs], strict=True)
    )


def _name_options(method: Method) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(method.options.items()))


def _pick(judged: Sequence[Judged], trained: int, learned: Sequence[str]) -> Judged:
    """Return the method to write: the guard first, then the loss, then the rank."""
    passing = [entry for entry in judged if entry.passes]
    least = min(entry.compute_long_loss(trained) for entry in passing)
    if not np.isfinite(least):
        return passing[0]
    near = [entry for entry in passing if entry.compute_long_loss(trained) <= (1 + GUARD) * least]
    if not learned:
        return min(near, key=lambda entry: entry.compute_long_loss(trained))
    return max(near, key=lambda entry: (round(entry.compute_long_rank(trained, learned), 2),
                                        -entry.compute_long_loss(trained)))  # fmt: skip
