"""What was chosen, as findings: every finalist by length beside its cost on short text, and what was tried before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clockhands.comparison.statistics.paired import Difference
from clockhands.comparison.statistics.simultaneous import compare_with_baseline
from clockhands.extension.choose import EQUAL, GUARD, RANK_STEP, Choice, Judged
from clockhands.extension.methods import read_by_cache
from clockhands.extension.reading import Drift, Stream, cut_texts, measure_drift, measure_losses
from clockhands.extension.retrieval import CHANCE
from clockhands.extension.tuning import Tuning
from clockhands.findings import Figure, Finding, Reference, Table, draw_columns, join_words, put_together
from clockhands.models import LanguageModel
from clockhands.shapes import Float

GROUP = "What makes it read further"


def describe_choice(choice: Choice) -> str:
    """Say what was chosen, what it gains at the longest length, and what it costs on short text."""
    chosen, plain = choice.chosen, choice.judged[0]
    before, after = (float(entry.drift.losses_NR[:, -1].mean()) for entry in (plain, chosen))
    if chosen is plain:
        return f"Chosen: the model as it is{_explain_plain(choice)}"
    start = f"as trained it is {before:.3f}" if np.isfinite(before) else "as trained the model cannot read so far"
    cost = chosen.cost
    price = ""
    if cost is not None:
        value, low, high = _measure_cost(chosen, cost)
        price = f" Within the trained length it costs {value:+.2f} % [{low:+.2f}, {high:+.2f}]."
    by_cache = ""
    if chosen.cached is not None:
        loss = float(chosen.cached.losses_NR[:, -1].mean())
        by_cache = f" in one pass, and {loss:.3f} where it reads {choice.trained:,} tokens and goes on by its cache"
    return (
        f"Chosen: {chosen.method.name}, {chosen.method.description}. At {choice.longest:,} tokens the loss is "
        f"{after:.3f}{by_cache}; {start}.{price}"
    )


def _explain_plain(choice: Choice) -> str:
    """Say why the model as it is was chosen: by the guard, by what can be written, or by loss and rank."""
    methods = choice.judged[1:]
    barred = sum(not entry.passes for entry in methods)
    if barred == len(methods):
        return "; no method is shown to pass the guard."
    able = [entry for entry in methods if entry.passes and entry.writable]
    if not able:
        return "; no method that can be written is shown to pass the guard."
    if not any(np.isfinite(entry.compute_long_loss(choice.trained)) for entry in (choice.judged[0], *able)):
        return "; it reads no text beyond the trained length, and no method that passes the guard does."
    compared = "loss and rank" if choice.learned else "loss"
    verb = "is" if barred == 1 else "are"
    why = f"; {barred} of {len(methods)} methods {verb} not shown to pass it" if barred else ""
    return f". Of what passes the guard and can be written, it is the least behind the best in {compared}{why}."


def _describe_unwritten(choice: Choice) -> str:
    """Say which methods read further than the chosen one and pass the guard, but cannot be written; empty if none."""
    least = choice.chosen.compute_long_loss(choice.trained)
    better = [
        entry
        for entry in choice.judged
        if not entry.writable and entry.passes and entry.compute_long_loss(choice.trained) < (1 - GUARD) * least
    ]
    if not better:
        return ""
    names = join_words(f"{entry.method.name} ({entry.compute_long_loss(choice.trained):.3f})" for entry in better)
    reads, needs = ("reads", "needs") if len(better) == 1 else ("read", "need")
    return (
        f" Beyond the trained length {names} {reads} with a smaller mean loss than that ({least:.3f}), but {needs} an "
        "attention of another kind, which plain transformers cannot open."
    )


def make_choice_finding(choice: Choice) -> Finding:
    """Return the finding of the judgement: every finalist by length beside its cost on short text."""
    lengths = choice.judged[0].drift.lengths
    ranked = lengths if choice.learned else ()
    cached = _list_cached(choice)
    columns = ["method", *(f"loss at {length:,}" for length in lengths), *(f"rank at {length:,}" for length in ranked),
               *(f"loss at {length:,}, by cache" for length in cached),
               "cost within the trained length, %", "cost, low", "cost, high", "passes the guard", "can be written",
               "chosen"]  # fmt: skip
    rows = [_make_row(entry, choice) for entry in choice.judged]
    chosen = choice.chosen
    after = float(chosen.drift.losses_NR[:, -1].mean())
    before = float(choice.judged[0].drift.losses_NR[:, -1].mean())
    references = (Reference("as trained", before),) if np.isfinite(before) else ()
    questions = ""
    if choice.judged[0].retrieval is not None:
        counts = [f"{count} questions of {task}" for task, count in choice.judged[0].retrieval.questions.items()]
        questions = f" and {', '.join(counts)} (of methods that could be chosen)"
    return Finding(
        "extend.choice",
        f"What makes it read {choice.longest:,} tokens, and what does that cost on short text?",
        describe_choice(choice) + _describe_unwritten(choice),
        after,
        "nats per token",
        references=references,
        light="good" if chosen is not choice.judged[0] else "warn",
        table=Table.of(columns, rows),
        figure=_draw(choice),
        method=(
            f"{len(chosen.drift.losses_NR)} texts{questions} that neither the halving nor the search "
            f"has read. Guard: the cost on texts of {choice.trained:,} tokens is shown to be below {GUARD:.0%} of the "
            "loss (one-sided bound, simultaneous over methods). Of those that pass, the one that is least behind the "
            f"best in what it does worse beyond the trained length: {GUARD:.0%} of the mean loss counts as much as "
            f"{100 * RANK_STEP:.0f} points of rank."
            + (
                " Where frequencies depend on the length of a call, texts are read by a cache too, "
                f"{choice.trained:,} tokens at once and the others one by one, and the worse of the two counts."
                if cached
                else ""
            )
            + f" Of methods within {EQUAL:.0%} of that the one is chosen that depends least on the length of a call."
        ),
        source="LongRoPE (Ding et al. 2024) for the search; the rules and schemes name their own",
        details={"group": GROUP},
    )


def _make_row(entry: Judged, choice: Choice) -> tuple[object, ...]:
    losses = entry.drift.losses_NR.mean(0)
    cost = entry.cost
    spans = (0.0, None, None) if cost is None else _measure_cost(entry, cost)
    answers = ["yes" if holds else "no" for holds in (entry.passes, entry.writable)]
    marks = (*answers, "chosen" if entry is choice.chosen else "")
    ranks = [None if np.isnan(mean) else mean for mean in _mean_ranks(entry)] if choice.learned else []
    by_cache = [None] * len(_list_cached(choice)) if entry.cached is None else entry.cached.losses_NR.mean(0)[1:]
    return (entry.method.name, *losses, *ranks, *by_cache, *spans, *marks)


def _list_cached(choice: Choice) -> tuple[int, ...]:
    """Return the lengths at which methods were read by a cache too; none where a cache changes none of them."""
    return choice.judged[0].drift.lengths[1:] if any(entry.cached for entry in choice.judged) else ()


def _measure_cost(entry: Judged, cost: Difference) -> tuple[float, float, float]:
    """Return the cost within the trained length in percent of the loss, and the bounds of its interval."""
    value, low, high = (100 * nats / entry.short_loss for nats in (cost.value, cost.low, cost.high))
    return value, low, high


def _mean_ranks(entry: Judged) -> np.ndarray:
    """Return the mean rank by length, over the tasks that the model has learned; NaN where it was not measured."""
    if entry.retrieval is None:
        return np.full(len(entry.drift.lengths), np.nan)
    return np.mean([ranks_NR.mean(0) for ranks_NR in entry.retrieval.ranks.values()], axis=0)


def _draw(choice: Choice) -> Figure:
    def draw_lines(measure: Callable[[Judged], np.ndarray], **rest: Any) -> Figure:
        columns = {}
        for entry in choice.judged:
            values = zip(entry.drift.lengths, measure(entry), strict=True)
            columns[entry.method.name] = {
                f"{length:,}": value for length, value in values if np.isfinite(value)
            } or None
        plain, chosen = choice.judged[0].method.name, choice.chosen.method.name
        return draw_columns(
            "line", None, columns, main=chosen, reference={plain} - {chosen}, xlabel="tokens of text", **rest
        )

    figures = [
        draw_lines(
            lambda entry: entry.drift.losses_NR.mean(0), panel="Loss of the same last tokens", ylabel="nats per token"
        )
    ]
    if choice.learned:
        figures.append(
            draw_lines(
                _mean_ranks, panel="Retrieval", ylabel="rank of the right value", ylim=(0, 1.02),
                levels={"chance": CHANCE},
            )
        )  # fmt: skip
    costs = {entry.method.name: _measure_cost(entry, entry.cost) for entry in choice.judged if entry.cost is not None}
    values, low, high = ([cost[index] for cost in costs.values()] for index in range(3))
    figures.append(
        draw_columns(
            "bars", costs, {"cost": values}, intervals={"cost": (low, high)}, levels={"guard": 100 * GUARD},
            panel="Cost within the trained length", ylabel="% of the loss",
        )
    )  # fmt: skip
    return put_together(
        figures,
        caption='Each method by length of text ("none" is the model as it is), and what it costs on texts of the '
        "trained length, with 95% intervals.",
        height=0.42,
        title="What each method gives and costs",
    )


def make_trial_finding(choice: Choice) -> Finding:
    """Return the finding of the trials before the judgement."""
    rows = sorted(choice.tried.items(), key=lambda pair: (-pair[1][1], pair[1][0]))
    table = Table.of(
        ["method", f"loss in the later half of {choice.longest:,} tokens", "texts"],
        [(name, loss if np.isfinite(loss) else None, count) for name, (loss, count) in rows],
    )
    most = max(count for _, count in choice.tried.values())
    best, (least, _) = min(
        ((name, pair) for name, pair in choice.tried.items() if pair[1] == most), key=lambda entry: entry[1][0]
    )
    return Finding(
        "extend.tried",
        "What was tried before the judgement?",
        f"{len(choice.tried)} methods; of those that stayed until the last round ({most} texts) {best} had the "
        f"smallest loss in the later half of texts of {choice.longest:,} tokens, {least:.3f} nats.",
        light="info",
        table=table,
        method=(
            "Successive halving on paired losses: every method on few texts, the better half on twice as many. These "
            "losses chose the finalists, so they are no measure of them; the judgement is."
            + (f" Methods that need another attention were not tried: {choice.left_out}." if choice.left_out else "")
        ),
        details={"group": GROUP},
    )


@dataclass(frozen=True)
class Tuned:
    """A trained model against the same before training, on the text of the judgement.

    Args:
        drift: the loss of the last tokens after training, of N texts by length.
        cached: the same by a cache, where that changes it.
        before_NR: the same before training, with the same method.
        changes: of each length, the paired difference.
        cost: on texts of the trained length, against the model as it was, without the method; paired.
        short_loss: the loss of the latter there.
        steps_S: the loss of every step of the training.
    """

    drift: Drift
    cached: Drift | None
    before_NR: Float[np.ndarray, "N R"]
    changes: tuple[Difference, ...]
    cost: Difference
    short_loss: float
    steps_S: tuple[float, ...]


def measure_short(model: LanguageModel, stream: Stream, trained: int, texts: int) -> Float[np.ndarray, " N"]:
    """Measure the loss of texts of the trained length, all their tokens but the first."""
    return measure_losses(model, cut_texts(stream, trained, trained - 1, 4 * texts, model.start_ids), trained - 1)


def compare_tuned(
    tuned: LanguageModel, chosen: Judged, short_N: Float[np.ndarray, " N"], stream: Stream, choice: Choice,
    steps: list[float], texts: int,
) -> Tuned:  # fmt: skip
    """Measure a trained model as the chosen method was judged; ``short_N``: ``measure_short`` before it was changed."""

    def measure() -> Drift:
        count = len(chosen.drift.losses_NR)
        return measure_drift(tuned, stream, chosen.drift.lengths, tail=chosen.drift.tail, texts=count)

    drift, cached = measure(), None
    if chosen.cached is not None:
        with read_by_cache(tuned, chosen.method, choice.trained):
            cached = measure()
    places = range(len(drift.lengths))
    before_NR = chosen.drift.losses_NR
    changes = compare_with_baseline(
        [drift.losses_NR[:, [place]] for place in places], [before_NR[:, [place]] for place in places]
    )
    after_N = measure_short(tuned, stream, choice.trained, texts)
    (cost,) = compare_with_baseline([after_N[:, None]], [short_N[:, None]])
    return Tuned(drift, cached, before_NR, tuple(changes), cost, float(short_N.mean()), tuple(steps))


def make_tuning_finding(tuned: Tuned, tuning: Tuning) -> Finding:
    """Return the finding of a training."""
    last = tuned.changes[-1]
    word = "falls" if last.high < 0 else "rises" if last.low > 0 else "is not shown to change"
    low, high = (100 * bound / tuned.short_loss for bound in (tuned.cost.low, tuned.cost.high))
    price = 100 * tuned.cost.value / tuned.short_loss
    kept = tuned.cost.inner[1] < GUARD * tuned.short_loss
    guard = f"shown to be below the guard of {GUARD:.0%}" if kept else f"not shown to be below {GUARD:.0%}"
    longest = tuned.drift.lengths[-1]
    verdict = (
        f"At {longest:,} tokens the loss {word}: {last.value:+.3f} nats [{last.low:+.3f}, {last.high:+.3f}]. "
        f"On texts of the trained length training and method cost {price:+.2f} % [{low:+.2f}, {high:+.2f}], {guard}."
    )
    before, after = tuned.before_NR.mean(0), tuned.drift.losses_NR.mean(0)
    rows = [(length, before[place], after[place], change.value, change.low, change.high)
            for place, (length, change) in enumerate(zip(tuned.drift.lengths, tuned.changes, strict=True))]  # fmt: skip
    windows = {"skip": "skip-wise, in windows of the trained length", "full": "in windows of the new length"}
    return Finding(
        "extend.trained",
        f"What did {tuning.steps:,} steps of training give?",
        verdict,
        last.value,
        "nats per token",
        (last.low, last.high),
        references=(Reference("before training", 0.0),),
        light="good" if last.high < 0 and kept else "warn",
        table=Table.of(["tokens", "before", "after", "change", "low", "high"], rows),
        figure=put_together(
            (
                draw_columns(
                    "line",
                    [f"{length:,}" for length in tuned.drift.lengths],
                    {"before training": before, "after": after},
                    main="after",
                    reference=("before training",),
                    panel="Loss of the same last tokens",
                    xlabel="tokens of text",
                    ylabel="nats per token",
                ),
                draw_columns(
                    "line",
                    range(1, len(tuned.steps_S) + 1),
                    {"training": tuned.steps_S},
                    panel="Training",
                    xlabel="step",
                    ylabel="nats per token",
                ),
            ),
            columns=2,
            title="Before and after training, and the loss of its steps",
        ),
        method=f"Trained {windows[tuning.windows]}, on text that the judgement does not read. Paired by text.",
        source="PoSE (Zhu et al. 2024)" if tuning.windows == "skip" else "",
        details={"group": "What training gives"},
    )
