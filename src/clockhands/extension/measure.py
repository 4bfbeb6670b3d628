"""How far a model reads as it is: drift and retrieval at every length, and the longest that holds in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from clockhands.comparison.statistics.paired import PairedDifference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.errors import CheckpointError, UsageError, explain_overflow
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

DRIFT_MARGIN = 0.05
"""Nats per token that a length may cost over the best shorter one; set before anything is measured."""
KEPT = 0.75
"""The share of its lead over chance that a task has to keep: a model that misses two depths of five keeps less."""
ALPHA = 0.05
SHORTEST = 16
"""Tokens of the shortest text: a fact and its question with some context."""
DETAILS = {"group": "As it is"}


@dataclass(frozen=True)
class _Rung:
    """One length, and whether drift and every learned task are shown to hold there, or shown not to.

    ``drift``: the loss less that of the reference length, paired; None up to that, and where nothing can be read.
    Where neither is shown, more texts are needed. ``reason``: why it does not hold; empty where it does.
    """

    length: int
    drift: PairedDifference | None
    holds: bool
    shown_not: bool
    reason: str


@dataclass(frozen=True)
class _Usable:
    """The usable length, up to which every rung holds, with what it rests on; 0 if the shortest does not.

    ``learned``: the tasks whose rank is above chance at some length that was trained. ``drift_reference``: the length
    with the smallest mean loss among those. ``undecided``: the first rung that does not hold is not shown to fail.
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
    inside_R = np.array(lengths) <= trained
    learned = tuple(task for task in retrieval.ranks if _is_learned(retrieval, task, inside_R))
    # Ranks are judged as losses are, with the other sign: what rises is worse.
    scores = {"": drift.losses_NR, **{task: -retrieval.ranks[task] for task in learned}}
    level = ALPHA / len(scores)
    best, rises, allowed = {}, {}, {}
    for task, scores_NR in scores.items():
        means_R = scores_NR.mean(0)
        best[task] = int(np.where(inside_R & ~np.isnan(means_R), means_R, np.inf).argmin())
        allowed[task] = (1 - KEPT) * (-float(means_R[best[task]]) - CHANCE) if task else margin
        longer = [place for place in range(best[task] + 1, len(lengths)) if not np.isnan(means_R[place])]
        # The texts are the sample: each is a row of one item.
        theirs = [scores_NR[:, [best[task]]]] * len(longer)
        differences = (
            compare_with_baseline([scores_NR[:, [place]] for place in longer], theirs, level) if longer else []
        )
        rises[task] = dict(zip(longer, differences, strict=True))
    rungs = []
    for place, length in enumerate(lengths):
        unread = bool(np.isnan(drift.losses_NR[:, place]).any())
        faults = ["it cannot be read"] if unread else []
        shown_not = unread
        for task in () if unread else scores:  # a length too short for the facts of a task has no rise
            rise = rises[task].get(place)
            if rise is None or rise.inner[1] < allowed[task]:
                continue
            shown = rise.low > allowed[task]
            shown_not = shown_not or shown
            number = rise.value if shown else rise.inner[1]
            if task:
                faults.append(f"{task} {'falls by' if shown else 'may fall by up to'} {number:.2f} of rank")
            else:
                faults.append(f"the loss {'rises by' if shown else 'may rise by up to'} {number:+.3f} nats")
        rungs.append(_Rung(length, rises[""].get(place), not faults, shown_not, "; ".join(faults)))
    failing = next((rung for rung in rungs if not rung.holds), None)
    usable = [rung.length for rung in rungs if failing is None or rung.length < failing.length]
    undecided = failing is not None and not failing.shown_not
    return _Usable(usable[-1] if usable else 0, tuple(rungs), learned, lengths[best[""]], undecided)


def _is_learned(retrieval: Retrieval, task: str, inside_R: np.ndarray) -> bool:
    """Whether the rank is shown to be above chance at one of the trained lengths, by one-sided t intervals.

    The standard error is no smaller than that of ranks drawn evenly, which a few texts with like ranks would pretend.
    """
    ranks_NR = retrieval.ranks[task][:, inside_R]
    texts, within = ranks_NR.shape
    least = np.sqrt(1 / 12 / max(retrieval.questions.get(task, 0), texts))
    error_R = np.maximum(ranks_NR.std(0, ddof=1) / np.sqrt(texts), least)
    quantile = stats.t.ppf(1 - ALPHA / max(within * len(retrieval.ranks), 1), texts - 1)
    return bool((ranks_NR.mean(0) - quantile * error_R > CHANCE).any())  # which NaN is not


@dataclass(frozen=True)
class LengthMeasurement:
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
    lengths, length = [trained // part for part in (8, 4, 2) if trained // part >= SHORTEST], trained
    while length < longest:
        lengths.append(length)
        length *= 2
    return (*lengths, max(longest, trained))


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
) -> LengthMeasurement:
    """Measure drift on ``texts`` texts, retrieval on ``items`` questions of each task, and judge the usable length.

    ``archive`` keeps what was measured, so that a stopped measurement goes on.
    Raises UsageError for a model that reads none of the lengths, CheckpointError for logits that are no numbers.
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

    if not np.isfinite(drift.losses_NR[:, [length in readable for length in lengths]]).all():
        raise CheckpointError(explain_overflow(model.source))

    def retrieve() -> Retrieval:
        writing = choose_writing(model, stream, max(readable), seed)
        return measure_retrieval(model, stream, lengths, writing, items=items, seed=seed, progress=progress)

    retrieval = archive.keep_retrieval(f"measure/{items}/{rungs}", retrieve)
    usable = judge_usable(drift, retrieval, trained, margin)
    return LengthMeasurement(trained, drift, retrieval, usable, math.log(model.vocabulary_size))


def describe_usable(measurement: LengthMeasurement, margin: float) -> str:
    """Say in a sentence or two how far the model reads, and what it rests on."""
    usable, trained = measurement.usable, measurement.trained
    if measurement.knows_nothing:
        guess = f"a guess among all tokens ({measurement.guess:.2f} nats)"
        return (
            f"This cannot be told: the loss is nowhere better than {guess}, and no task of retrieval is above chance. "
            "There is nothing that a longer text could spoil."
        )
    rests = ""
    if not usable.learned:
        rests = (
            " No task of retrieval is shown to be above chance at a trained length, so this rests on the loss alone."
        )
    failing = next((rung for rung in usable.rungs if not rung.holds), None)
    if failing is None:
        verb = "keeps" if len(usable.learned) == 1 else "keep"
        kept = f", and {join_words(usable.learned)} {verb} {KEPT:.0%} of the lead over chance" if usable.learned else ""
        return (
            f"It reads at least {usable.length:,} tokens ({usable.length / trained:g}× the trained length), the "
            f"longest that was tried: the loss of the same tokens rises by less than {margin:g} nats{kept}.{rests}"
        )
    until = f"up to {usable.length:,} tokens ({usable.length / trained:g}× the trained length)"
    if usable.undecided:
        # Each fault names the loss, which is measured on --texts, or a task, which has --items.
        limits = [name for name, word in (("--texts", "the loss"), ("--items", "of rank")) if word in failing.reason]
        shown = f"it is shown to read {until}" if usable.length else "no length is shown to be read"
        return (
            f"With this much text {shown}. That is a limit of {' and '.join(limits)}, not of the model: at "
            f"{failing.length:,} tokens nothing is shown either way ({failing.reason}); give more.{rests}"
        )
    reads = f"It reads {until};" if usable.length else "It reads none of the lengths that were tried:"
    return f"{reads} at {failing.length:,} tokens {failing.reason}.{rests}"


def make_measure_findings(measurement: LengthMeasurement, *, margin: float) -> Iterator[Finding]:
    """Yield the findings of a measurement; ``margin``: nats that a length may cost."""
    usable, trained = measurement.usable, measurement.trained
    rows = []
    for rung in usable.rungs:
        reads = "yes" if rung.holds else "no" if rung.shown_not else "undecided"
        rows.append((rung.length, rung.length / trained, reads, rung.reason))
    light: Light = "good" if usable.length >= trained else "warn"
    if measurement.knows_nothing or (usable.undecided and usable.length < trained):
        light = "info"
    yield Finding(
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
        details=DETAILS,
    )
    edge = make_mark("vline", [f"{trained:,}"], label="trained length", emphasis="reference")
    yield _make_drift(measurement, edge)
    yield _make_retrieval(measurement, edge)


def _make_drift(measurement: LengthMeasurement, edge: Mark) -> Finding:
    drift, usable = measurement.drift, measurement.usable
    texts, means_R = len(drift.losses_NR), drift.losses_NR.mean(0)
    rows, last = [], usable.rungs[0]
    for rung, mean in zip(usable.rungs, means_R, strict=True):
        change = rung.drift
        spans = (None, None, None) if change is None else (change.value, change.low, change.high)
        rows.append((rung.length, rung.length / measurement.trained, mean, *spans))
        last = last if np.isnan(mean) else rung
    verdict, change = f"No length beyond {usable.drift_reference:,} tokens could be compared.", last.drift
    if change is not None:
        verdict = (
            f"At {last.length:,} tokens the same tokens cost {change.value:+.3f} nats [{change.low:+.3f}, "
            f"{change.high:+.3f}] against {usable.drift_reference:,} tokens of text."
        ).replace("-", "−")
    read = ~np.isnan(means_R)
    xs = [f"{length:,}" for length, can in zip(drift.lengths, read, strict=True) if can]
    reach = 2 * drift.losses_NR.std(0, ddof=1)[read] / np.sqrt(texts)
    marks = (
        make_mark("band", xs, label="2 standard errors", low=means_R[read] - reach, high=means_R[read] + reach),
        make_mark("line", xs, means_R[read], label="loss of the last tokens", emphasis="main"),
        edge,
    )
    return Finding(
        "extend.drift",
        "Does more text in front make the same tokens easier, or harder?",
        verdict,
        None if change is None else change.value,
        "nats per token",
        None if change is None else (change.low, change.high),
        light="info",
        table=Table.of(["tokens", "times trained", "loss", "against the best trained length", "low", "high"], rows),
        figure=Figure(
            (Panel(marks, xlabel="tokens of text", ylabel="nats per token"),),
            f"The same last {drift.tail} tokens of {texts} texts.",
            title="Loss by length of the text before",
        ),
        method=(
            f"The last {drift.tail} tokens of {texts} texts, scored after contexts of different length; differences "
            "are paired by text."
        ),
        details=DETAILS,
    )


def _make_retrieval(measurement: LengthMeasurement, edge: Mark) -> Finding:
    retrieval, learned = measurement.retrieval, measurement.usable.learned
    verdict = "No task is shown to be above chance at a trained length, so recall is left out of the judgement."
    if learned:
        verdict = f"Above chance at a trained length: {', '.join(learned)}."
        if absent := [task for task in retrieval.ranks if task not in learned]:
            verdict += f" Not shown to be above chance, and left out of the judgement: {', '.join(absent)}."
    rows: list[tuple[object, ...]] = []
    marks, references = [], [Reference("chance", CHANCE)]
    for task, ranks_NR in retrieval.ranks.items():
        control = float(retrieval.control[task].mean()) if task in retrieval.control else None
        if control is not None:
            references.append(Reference(f"{task}, without the facts", control))
        means = {}
        for place, mean in enumerate(ranks_NR.mean(0)):
            if not np.isnan(mean):
                depths = [None if np.isnan(rank) else rank for rank in retrieval.by_depth[task][:, place]]
                rows.append((task, retrieval.lengths[place], mean, *depths, control))
                means[f"{retrieval.lengths[place]:,}"] = float(mean)
        marks.append(make_mark("line", tuple(means), tuple(means.values()), label=task))
    marks += [make_reference_line(CHANCE, "chance"), edge]
    counts = ", ".join(f"{count} of {task}" for task, count in retrieval.questions.items())
    columns = ["task", "tokens", "mean rank", *(f"depth {depth:g}" for depth in DEPTHS), "without the facts"]
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
        details=DETAILS,
    )
