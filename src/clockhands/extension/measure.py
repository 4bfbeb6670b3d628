"""How far a model reads as it is: drift and retrieval at every length, and the longest that holds in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from clockhands.comparison.statistics.paired import Difference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.errors import UsageError
from clockhands.extension.archive import Archive
from clockhands.extension.reading import Drift, Stream, can_read, measure_drift
from clockhands.extension.retrieval import CHANCE, DEPTHS, FACTS, Retrieval, choose_writing, measure_retrieval
from clockhands.findings import (
    Figure,
    Finding,
    Light,
    Mark,
    Panel,
    Reference,
    Table,
    join_words,
    make_mark,
    make_reference_line,
)
from clockhands.models import LanguageModel
from clockhands.progress import CountProgress, ignore_count
from clockhands.shapes import Float

DRIFT_MARGIN = 0.05
"""Nats per token that a length may cost over the best shorter one; set before anything is measured."""
KEPT = 0.75
"""The share of its lead over chance that a task has to keep: a model that misses two depths of five keeps less."""
ALPHA = 0.05


@dataclass(frozen=True)
class _Rung:
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
class _Usable:
    """The usable length with what it rests on.

    Args:
        length: the longest rung up to which every rung holds; 0 if the shortest does not.
        rungs: every length, rising.
        learned: the tasks whose rank is above chance at some length that was trained.
        drift_reference: the length with the smallest mean loss among those that were trained.
        undecided: whether the first rung that does not hold is not shown to fail either.
    """

    length: int
    rungs: tuple[_Rung, ...]
    learned: tuple[str, ...]
    drift_reference: int
    undecided: bool


def judge_usable(drift: Drift, retrieval: Retrieval, trained: int, margin: float = DRIFT_MARGIN) -> _Usable:
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
            _Rung(
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
    return _Usable(usable[-1] if usable else 0, tuple(rungs), learned, lengths[reference], undecided)


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
    usable: _Usable
    guess: float = math.inf
    """The loss of a guess among all tokens of the vocabulary, in nats."""

    @property
    def knows_nothing(self) -> bool:
        """Whether no length can be told from the loss, as it is nowhere better than a guess, and no task is learned."""
        return not self.usable.learned and float(np.nanmin(self.drift.losses_NR.mean(0))) >= self.guess - 0.01


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
    tail = max(4, min(64, min(choose_lengths(trained, trained)) // 2))  # half of the shortest length, from 4 to 64
    drift = archive.keep_drift(
        f"measure/{texts}/{rungs}",
        lambda: measure_drift(model, stream, lengths, tail=tail, texts=texts, progress=progress),
    )

    def retrieve() -> Retrieval:
        writing = choose_writing(model, stream, max(readable), seed)
        return measure_retrieval(model, stream, lengths, writing, items=items, seed=seed, progress=progress)

    retrieval = archive.keep_retrieval(f"measure/{items}/{rungs}", retrieve)
    usable = judge_usable(drift, retrieval, trained, margin)
    return Measurement(trained, drift, retrieval, usable, math.log(model.vocabulary_size))


GROUP = "As it is"


def make_measure_findings(measurement: Measurement, *, margin: float) -> Iterator[Finding]:
    """Yield the findings of a measurement; ``margin``: nats that a length may cost."""
    yield _make_usable(measurement, margin)
    yield _make_drift(measurement)
    yield _make_retrieval(measurement)


def describe_usable(measurement: Measurement, margin: float) -> str:
    """Say in a sentence or two how far the model reads, and what it rests on."""
    usable, trained = measurement.usable, measurement.trained
    if measurement.knows_nothing:
        guess = f"a guess among all tokens ({measurement.guess:.2f} nats)"
        return (
            f"This cannot be told: the loss is nowhere better than {guess}, and no task of retrieval is above chance. "
            "There is nothing that a longer text could spoil."
        )
    longest = usable.rungs[-1].length
    rests = "" if usable.learned else (
        " No task of retrieval is shown to be above chance at a trained length, so this rests on the loss alone."
    )  # fmt: skip
    if usable.length == longest:
        verb = "keeps" if len(usable.learned) == 1 else "keep"
        kept = f", and {join_words(usable.learned)} {verb} {KEPT:.0%} of the lead over chance" if usable.learned else ""
        return (
            f"It reads at least {longest:,} tokens ({longest / trained:g}× the trained length), the longest that "
            f"was tried: the loss of the same tokens rises by less than {margin:g} nats{kept}.{rests}"
        )
    failing = next(rung for rung in usable.rungs if not rung.holds)
    until = f"up to {usable.length:,} tokens ({usable.length / trained:g}× the trained length)"
    if usable.undecided:
        # Each fault names the loss, which is measured on --texts, or a task, which has --items.
        limits = [name for name, word in (("--texts", "the loss"), ("--items", "of rank")) if word in failing.reason]
        shown = f"it is shown to read {until}" if usable.length else "no length is shown to be read"
        return (
            f"With this much text {shown}. That is a limit of {' and '.join(limits)}, not of the model: at "
            f"{failing.length:,} tokens nothing is shown either way ({failing.reason}); give more.{rests}"
        )
    if not usable.length:
        return f"It reads none of the lengths that were tried: at {failing.length:,} tokens {failing.reason}.{rests}"
    return f"It reads {until}; at {failing.length:,} tokens {failing.reason}.{rests}"


def _make_usable(measurement: Measurement, margin: float) -> Finding:
    usable, trained = measurement.usable, measurement.trained
    rows = [
        (rung.length, rung.length / trained, "yes" if rung.holds else "no" if rung.shown_not else "undecided",
         rung.reason)
        for rung in usable.rungs
    ]  # fmt: skip
    light: Light = "good" if usable.length >= trained else "warn"
    if measurement.knows_nothing or (usable.undecided and usable.length < trained):
        light = "info"
    return Finding(
        "extend.usable",
        "How long a text can this model read as it is?",
        describe_usable(measurement, margin),
        usable.length,
        "tokens",
        references=(Reference("trained length", trained),),
        light=light,
        table=Table.of(["tokens", "times trained", "reads", "because"], rows),
        method=(
            f"A length counts as read if the loss of the same last tokens is shown to be less than {margin:g} nats "
            f"above that at the best trained length, and each learned task is shown to keep {KEPT:.0%} of its lead "
            "over chance; so must every shorter length. One-sided bounds, simultaneous over lengths and tasks (max-t)."
        ),
        details={"group": GROUP},
    )


def _make_drift(measurement: Measurement) -> Finding:
    drift, usable = measurement.drift, measurement.usable
    means_R = drift.losses_NR.mean(0)
    read = [place for place in range(len(means_R)) if not np.isnan(means_R[place])]
    rows = []
    for place, rung in enumerate(usable.rungs):
        spans = (None, None, None) if rung.drift is None else (rung.drift.value, rung.drift.low, rung.drift.high)
        rows.append((rung.length, rung.length / measurement.trained, means_R[place], *spans))
    last = usable.rungs[read[-1]]
    change = last.drift
    xs, means = [f"{drift.lengths[place]:,}" for place in read], means_R[read]
    reach = 2 * drift.losses_NR.std(0, ddof=1)[read] / np.sqrt(len(drift.losses_NR))
    marks = (
        make_mark("band", xs, label="2 standard errors", low=means - reach, high=means + reach),
        make_mark("line", xs, means, label="loss of the last tokens", emphasis="main"),
        _mark_trained(measurement),
    )
    if change is None:
        verdict = f"No length beyond {usable.drift_reference:,} tokens could be compared."
        value, interval = None, None
    else:
        verdict = (
            f"At {last.length:,} tokens the same tokens cost {change.value:+.3f} nats [{change.low:+.3f}, "
            f"{change.high:+.3f}] against {usable.drift_reference:,} tokens of text."
        )
        value, interval = change.value, (change.low, change.high)
    return Finding(
        "extend.drift",
        "Does more text in front make the same tokens easier, or harder?",
        verdict,
        value,
        "nats per token",
        interval,
        light="info",
        table=Table.of(["tokens", "times trained", "loss", "against the best trained length", "low", "high"], rows),
        figure=Figure(
            (Panel(marks, xlabel="tokens of text", ylabel="nats per token"),),
            f"The same last {drift.tail} tokens of {len(drift.losses_NR)} texts.",
            title="Loss by length of the text before",
        ),
        method=(
            f"The last {drift.tail} tokens of {len(drift.losses_NR)} texts, scored after contexts of different length; "
            "differences are paired by text."
        ),
        details={"group": GROUP},
    )


def _make_retrieval(measurement: Measurement) -> Finding:
    retrieval, learned = measurement.retrieval, measurement.usable.learned
    absent = [task for task in retrieval.ranks if task not in learned]
    left_out = f" Not shown to be above chance, and left out of the judgement: {', '.join(absent)}." if absent else ""
    verdict = (
        f"Above chance at a trained length: {', '.join(learned)}.{left_out}"
        if learned
        else "No task is shown to be above chance at a trained length, so recall is left out of the judgement."
    )
    columns = ["task", "tokens", "mean rank", *(f"depth {depth:g}" for depth in DEPTHS), "without the facts"]
    references = [Reference("chance", CHANCE)]
    references += [Reference(f"{task}, without the facts", float(control_N.mean()))
                   for task, control_N in retrieval.control.items()]  # fmt: skip
    counts = ", ".join(f"{count} of {task}" for task, count in retrieval.questions.items())
    rows: list[tuple[object, ...]] = []
    marks: list[Mark] = []
    for task, ranks_NR in retrieval.ranks.items():
        control = float(retrieval.control[task].mean()) if task in retrieval.control else None
        read = [place for place in range(ranks_NR.shape[1]) if not np.isnan(ranks_NR[:, place]).any()]
        for place in read:
            depths = [None if np.isnan(mean) else mean for mean in retrieval.by_depth[task][:, place]]
            rows.append((task, retrieval.lengths[place], ranks_NR[:, place].mean(), *depths, control))
        xs = [f"{retrieval.lengths[place]:,}" for place in read]
        marks.append(make_mark("line", xs, ranks_NR[:, read].mean(0), label=task))
    marks += [make_reference_line(CHANCE, "chance"), _mark_trained(measurement)]
    return Finding(
        "extend.retrieval",
        "Does it find again what stands in the text?",
        verdict,
        references=tuple(references),
        light="info" if learned else "warn",
        table=Table.of(columns, rows),
        figure=Figure(
            (Panel(tuple(marks), xlabel="tokens of text", ylabel="rank of the right value", ylim=(0, 1.02)),),
            "Rank of the right value among wrong ones: 1 is the best, 0.5 is chance.",
            title="Recall by length of the text",
        ),
        method=(
            f"Questions at each length: {counts}; facts are written {retrieval.writing!r}. "
            f"A text has {FACTS['recall']} facts. passkey: the wrong values stand nowhere in it. "
            "recall: the wrong values are those of the other facts. "
            f"tracking: {FACTS['tracking']} chains of two facts. The rank is the share of wrong values with a "
            "smaller logit; the sample are the texts."
        ),
        source="RULER (Hsieh et al. 2024), by rank",
        details={"group": GROUP},
    )


def _mark_trained(measurement: Measurement) -> Mark:
    return make_mark("vline", [f"{measurement.trained:,}"], label="trained length", emphasis="reference")
