"""Chooses how to reach a length: every method on a few texts, the better half on more, a search, then a judgement.

The judgement reads text that neither the halving nor the search has seen. A method passes the guard if its cost on
texts of the trained length is shown to be below ``GUARD``. Of those that pass, the one is chosen that is least behind
the best in what it does worse: in its loss on longer texts, or in what it finds there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clockhands.extension.archive import Archive
from clockhands.extension.judge import GUARD, Judged, judge, list_able
from clockhands.extension.methods import Method, can_write, explain_left_out, list_methods
from clockhands.extension.text import Stream
from clockhands.extension.trial import FINALISTS, search, try_methods
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count

__all__ = ["RANK_STEP", "Choice", "choose_method", "measure_lags"]

RANK_STEP = 0.02
"""What counts as much of the rank as ``GUARD`` does of the loss, if a method is behind by it."""
EQUAL = 0.1
"""Methods that are behind by no more than that share of ``GUARD`` or ``RANK_STEP`` than the best are its equals."""


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
    judged = judge(
        model, finalists, judgement_stream, trained, longest, texts=texts, items=items, tasks=learned, seed=seed,
        archive=archive, progress=progress,
    )  # fmt: skip
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
