"""What was measured of a model as it is, as findings: its usable length, its drift, its retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from clockhands.extension.facts import DEPTHS, FACTS
from clockhands.extension.measure import KEPT, Measurement
from clockhands.extension.retrieval import CHANCE, Retrieval
from clockhands.findings import Figure, Finding, Mark, Panel, Reference, Table, join_words
from clockhands.shapes import Float

GROUP = "As it is"


def make_measure_findings(measurement: Measurement, *, margin: float) -> Iterator[Finding]:
    """Yield the findings of a measurement; ``margin``: nats that a length may cost."""
    yield _make_usable(measurement, margin)
    yield _make_drift(measurement)
    yield _make_retrieval(measurement)


def _times(length: int, trained: int) -> str:
    return f"{length / trained:g}×"


def describe_usable(measurement: Measurement, margin: float) -> str:
    """Say in a sentence or two how far the model reads, and what it rests on."""
    usable, trained = measurement.usable, measurement.trained
    longest = usable.rungs[-1].length
    rests = "" if usable.learned else (
        " No task of retrieval is shown to be above chance at a trained length, so this rests on the loss alone."
    )  # fmt: skip
    if usable.length == longest:
        verb = "keeps" if len(usable.learned) == 1 else "keep"
        kept = f", and {join_words(usable.learned)} {verb} {KEPT:.0%} of the lead over chance" if usable.learned else ""
        return (
            f"It reads at least {longest:,} tokens ({_times(longest, trained)} the trained length), the longest that "
            f"was tried: the loss of the same tokens rises by less than {margin:g} nats{kept}.{rests}"
        )
    failing = next(rung for rung in usable.rungs if not rung.holds)
    until = f"up to {usable.length:,} tokens ({_times(usable.length, trained)} the trained length)"
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
    return Finding(
        "extend.usable",
        "How long a text can this model read as it is?",
        describe_usable(measurement, margin),
        usable.length,
        "tokens",
        references=(Reference("trained length", trained),),
        light="good" if usable.length >= trained else "info" if usable.undecided else "warn",
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
        figure=_draw_drift(measurement, read),
        method=(
            f"The last {drift.tail} tokens of {len(drift.losses_NR)} texts, scored after contexts of different length; "
            "differences are paired by text."
        ),
        details={"group": GROUP},
    )


def _draw_drift(measurement: Measurement, read: Sequence[int]) -> Figure:
    drift = measurement.drift
    means_R = drift.losses_NR.mean(0)
    errors_R = drift.losses_NR.std(0, ddof=1) / np.sqrt(len(drift.losses_NR))
    xs = tuple(f"{drift.lengths[place]:,}" for place in read)
    marks = (
        Mark("band", "2 standard errors", x=xs, low=tuple(float(means_R[p] - 2 * errors_R[p]) for p in read),
             high=tuple(float(means_R[p] + 2 * errors_R[p]) for p in read)),
        Mark("line", "loss of the last tokens", x=xs, y=tuple(float(means_R[p]) for p in read), emphasis="main"),
        Mark("vline", "trained length", x=(f"{measurement.trained:,}",), emphasis="reference"),
    )  # fmt: skip
    panel = Panel(marks, xlabel="tokens of text", ylabel="nats per token")
    caption = f"The same last {drift.tail} tokens of {len(drift.losses_NR)} texts."
    return Figure((panel,), caption, title="Loss by length of the text before")


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
    return Finding(
        "extend.retrieval",
        "Does it find again what stands in the text?",
        verdict,
        references=tuple(references),
        light="info" if learned else "warn",
        table=Table.of(columns, list(_list_ranks(retrieval))),
        figure=_draw_retrieval(measurement),
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


def _find_read(ranks_NR: Float[np.ndarray, "N R"]) -> list[int]:
    return [place for place in range(ranks_NR.shape[1]) if not np.isnan(ranks_NR[:, place]).any()]


def _list_ranks(retrieval: Retrieval) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the table: a task at a length."""
    for task, ranks_NR in retrieval.ranks.items():
        control = float(retrieval.control[task].mean()) if task in retrieval.control else None
        for place in _find_read(ranks_NR):
            depths = [None if np.isnan(mean) else mean for mean in retrieval.by_depth[task][:, place]]
            yield task, retrieval.lengths[place], ranks_NR[:, place].mean(), *depths, control


def _draw_retrieval(measurement: Measurement) -> Figure:
    retrieval = measurement.retrieval
    marks = [
        Mark("line", task, x=tuple(f"{retrieval.lengths[place]:,}" for place in _find_read(ranks_NR)),
             y=tuple(float(ranks_NR[:, place].mean()) for place in _find_read(ranks_NR)))
        for task, ranks_NR in retrieval.ranks.items()
    ]  # fmt: skip
    marks += [
        Mark("hline", "chance", y=(CHANCE,), emphasis="reference"),
        Mark("vline", "trained length", x=(f"{measurement.trained:,}",), emphasis="reference"),
    ]
    panel = Panel(tuple(marks), xlabel="tokens of text", ylabel="rank of the right value", ylim=(0, 1.02))
    caption = "Rank of the right value among wrong ones: 1 is the best, 0.5 is chance."
    return Figure((panel,), caption, title="Recall by length of the text")
