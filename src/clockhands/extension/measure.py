"""How far a model reads as it is: drift and retrieval at every length, and the longest that holds in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from clockhands.comparison.statistics.paired import Difference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.errors import UsageError
from clockhands.extension.archive import Archive
from clockhands.extension.reading import Drift, Stream, can_read, measure_drift
from clockhands.extension.retrieval import CHANCE, Retrieval, choose_writing, measure_retrieval
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

DRIFT_MARGIN = 0.05
"""Nats per token that a length may cost over the best shorter one; set before anything is measured."""
KEPT = 0.75
"""The share of its lead over chance that a task has to keep: a model that misses two depths of five keeps less."""
ALPHA = 0.05


@dataclass(frozen=True)
class Rung:
    """One length, and what was found there.

    Args:
        length: tokens.
        drift: the loss less that of the reference length, paired; None at the reference, below it, and where the model
            cannot read so far.
        ranks: of each task that the model has learned, the mean rank less that of its reference length.
        holds: whether drift and every learned task are shown to hold here.
        shown_not: whether one of them is shown not to hold; where neither is, more texts are needed.
        reason: why it does not hold; empty where it does.
    """

    length: int
    drift: Difference | None
    ranks: Mapping[str, Difference]
    holds: bool
    shown_not: bool
    reason: str = ""


@dataclass(frozen=True)
class Usable:
    """The usable length with what it rests on.

    Args:
        length: the longest rung up to which every rung holds; 0 if the shortest does not.
        rungs: every length, rising.
        learned: the tasks whose rank is above chance at some length that was trained.
        drift_reference: the length with the smallest mean loss among those that were trained.
        undecided: whether the first rung that does not hold is not shown to fail either.
    """

    length: int
    rungs: tuple[Rung, ...]
    learned: tuple[str, ...]
    drift_reference: int
    undecided: bool


def judge_usable(drift: Drift, retrieval: Retrieval, trained: int, margin: float = DRIFT_MARGIN) -> Usable:
    """Judge every length against the best trained one, with intervals that hold for all lengths and tasks together.

    Both must have the same lengths. A length holds if the loss is shown to rise by less than ``margin``, and every
    learned task is shown to keep the share ``KEPT`` of its lead over chance. Nothing is learned where the rank at the
    best trained length is not shown to be above chance.
    """
    lengths = drift.lengths
    learned = tuple(task for task in retrieval.ranks if _is_learned(retrieval, task, trained))
    level = ALPHA / (1 + len(learned))
    reference = _find_best(drift.losses_NR, lengths, trained, smallest=True)
    changes = _compare(drift.losses_NR, reference, level)
    by_task = {}
    for task in learned:
        ranks_NR = retrieval.ranks[task]
        best = _find_best(ranks_NR, lengths, trained, smallest=False)
        allowed = (1 - KEPT) * (float(ranks_NR[:, best].mean()) - CHANCE)
        by_task[task] = (_compare(ranks_NR, best, level), allowed)
    rungs = []
    for place, length in enumerate(lengths):
        faults = list(_find_faults(drift, retrieval, place, changes, by_task, margin))
        rungs.append(
            Rung(
                length,
                changes.get(place),
                {task: gaps[place] for task, (gaps, _) in by_task.items() if place in gaps},
                not faults,
                any(shown for _, shown in faults),
                "; ".join(reason for reason, _ in faults),
            )
        )
    failing = next((rung for rung in rungs if not rung.holds), None)
    usable = [rung.length for rung in rungs if failing is None or rung.length < failing.length]
    undecided = failing is not None and not failing.shown_not
    return Usable(usable[-1] if usable else 0, tuple(rungs), learned, lengths[reference], undecided)


def _is_learned(retrieval: Retrieval, task: str, trained: int) -> bool:
    """Whether the rank is shown to be above chance at one of the trained lengths, by one-sided t intervals.

    The standard error is no smaller than that of ranks drawn evenly, which a few texts with like ranks would pretend.
    """
    least = np.sqrt(1 / 12 / max(retrieval.questions.get(task, 0), len(retrieval.ranks[task])))
    within = [place for place, length in enumerate(retrieval.lengths) if length <= trained]
    for place in within:
        ranks_N = retrieval.ranks[task][:, place]
        if np.isnan(ranks_N).any():
            continue
        error = max(float(ranks_N.std(ddof=1)) / np.sqrt(len(ranks_N)), least)
        reach = float(stats.t.ppf(1 - ALPHA / max(len(within) * len(retrieval.ranks), 1), len(ranks_N) - 1)) * error
        if float(ranks_N.mean()) - reach > CHANCE:
            return True
    return False


def _find_best(scores_NR: Float[np.ndarray, "N R"], lengths: Sequence[int], trained: int, *, smallest: bool) -> int:
    """Return the place of the best mean among the trained lengths that could be read."""
    means_R = scores_NR.mean(0) if smallest else -scores_NR.mean(0)
    inside_R = np.array([length <= trained for length in lengths]) & ~np.isnan(means_R)
    return int(np.where(inside_R, means_R, np.inf).argmin())


def _compare(scores_NR: Float[np.ndarray, "N R"], reference: int, level: float) -> dict[int, Difference]:
    """Return the paired difference of every longer length from the reference, with simultaneous intervals.

    The texts are the sample: each is a row of one item.
    """
    places = [place for place in range(reference + 1, scores_NR.shape[1]) if not np.isnan(scores_NR[:, place]).any()]
    if not places:
        return {}
    ours = [scores_NR[:, [place]] for place in places]
    return dict(zip(places, compare_with_baseline(ours, [scores_NR[:, [reference]]] * len(places), level), strict=True))


def _find_faults(
    drift: Drift,
    retrieval: Retrieval,
    place: int,
    changes: Mapping[int, Difference],
    by_task: Mapping[str, tuple[dict[int, Difference], float]],
    margin: float,
) -> list[tuple[str, bool]]:
    """Return what does not hold at a length, and whether that is shown."""
    if np.isnan(drift.losses_NR[:, place]).any():
        return [("it cannot be read", True)]
    faults = []
    change = changes.get(place)
    if change is not None and not change.inner[1] < margin:
        shown = change.low > margin
        rise = f"rises by {change.value:+.3f}" if shown else f"may rise by up to {change.inner[1]:+.3f}"
        faults.append((f"the loss {rise} nats", shown))
    for task, (gaps, allowed) in by_task.items():
        if np.isnan(retrieval.ranks[task][:, place]).any():
            continue  # too short for the facts of the task
        gap = gaps.get(place)
        if gap is not None and not gap.inner[0] > -allowed:
            shown = gap.high < -allowed
            fall = f"falls by {-gap.value:.2f}" if shown else f"may fall by up to {-gap.inner[0]:.2f}"
            faults.append((f"{task} {fall} of rank", shown))
    return faults


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
        lambda: measure_drift(model, stream, lengths, tail=choose_tail(trained), texts=texts, progress=progress),
    )

    def retrieve() -> Retrieval:
        writing = choose_writing(model, stream, max(readable), seed)
        return measure_retrieval(model, stream, lengths, writing, items=items, seed=seed, progress=progress)

    retrieval = archive.keep_retrieval(f"measure/{items}/{rungs}", retrieve)
    return Measurement(trained, drift, retrieval, judge_usable(drift, retrieval, trained, margin))
