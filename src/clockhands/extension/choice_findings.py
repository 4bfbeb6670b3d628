"""What was chosen, as findings: every finalist by length beside its cost on short text, and what was tried before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clockhands.extension.choose import EQUAL, GUARD, RANK_STEP, Choice, Judged
from clockhands.extension.retrieval import CHANCE
from clockhands.findings import Figure, Finding, Reference, Table, draw_columns, join_words, put_together

DETAILS = {"group": "What makes it read further"}


def describe_choice(choice: Choice) -> str:
    """Say what was chosen, what it gains at the longest length, and what it costs on short text."""
    chosen, plain = choice.chosen, choice.judged[0]
    if chosen is plain:
        return f"Chosen: the model as it is{_explain_plain(choice)}"
    before, after = plain.drift.losses_NR[:, -1].mean(), chosen.drift.losses_NR[:, -1].mean()
    start = f"as trained it is {before:.3f}" if np.isfinite(before) else "as trained the model cannot read so far"
    price = by_cache = ""
    if chosen.cost is not None:
        value, low, high = chosen.cost_percent
        price = f" Within the trained length it costs {value:+.2f} % [{low:+.2f}, {high:+.2f}].".replace("-", "−")
    if chosen.cached is not None:
        loss = chosen.cached.losses_NR[:, -1].mean()
        by_cache = f" in one pass, and {loss:.3f} where it reads {choice.trained:,} tokens and goes on by its cache"
    return (
        f"Chosen: {chosen.method.name}, {chosen.method.description}. At {choice.longest:,} tokens the loss is "
        f"{after:.3f}{by_cache}; {start}.{price}"
    )


def _explain_plain(choice: Choice) -> str:
    """Say why the model as it is was chosen: by the guard, by what can be written, or by loss and rank."""
    plain, *methods = choice.judged
    barred = sum(not entry.passes for entry in methods)
    if barred == len(methods):
        return "; no method is shown to pass the guard."
    able = [entry for entry in methods if entry.passes and entry.writable]
    if not able:
        return "; no method that can be written is shown to pass the guard."
    if not any(np.isfinite(entry.long_loss) for entry in (plain, *able)):
        return "; it reads no text beyond the trained length, and no method that passes the guard does."
    compared = "loss and rank" if choice.learned else "loss"
    verb = "is" if barred == 1 else "are"
    why = f"; {barred} of {len(methods)} methods {verb} not shown to pass it" if barred else ""
    return f". Of what passes the guard and can be written, it is the least behind the best in {compared}{why}."


def _describe_unwritten(choice: Choice) -> str:
    """Say which methods read further than the chosen one and pass the guard, but cannot be written; empty if none."""
    least = choice.chosen.long_loss
    unwritten = [entry for entry in choice.judged if entry.passes and not entry.writable]
    better = [entry for entry in unwritten if entry.long_loss < (1 - GUARD) * least]
    if not better:
        return ""
    names = join_words(f"{entry.method.name} ({entry.long_loss:.3f})" for entry in better)
    reads, them = ("reads", "it") if len(better) == 1 else ("read", "them")
    return (
        f" Beyond the trained length {names} {reads} with a smaller mean loss than that ({least:.3f}), but plain "
        f"transformers cannot open a model with {them}."
    )


def _mean_ranks(entry: Judged) -> list[float | None]:
    if entry.retrieval is None:
        return [None] * len(entry.drift.lengths)
    means_R = np.mean([ranks_NR.mean(0) for ranks_NR in entry.retrieval.ranks.values()], axis=0)
    return [None if np.isnan(mean) else float(mean) for mean in means_R]


def make_choice_finding(choice: Choice) -> Finding:
    """Return the finding of the judgement: every finalist by length beside its cost on short text."""
    plain, chosen = choice.judged[0], choice.chosen
    lengths = plain.drift.lengths
    # Where a cache changes some method, all have columns of it, from the first length beyond the trained one.
    cached = lengths[1:] if any(entry.cached for entry in choice.judged) else ()
    columns = ["method", *(f"loss at {length:,}" for length in lengths)]
    columns += [f"rank at {length:,}" for length in lengths] if choice.learned else []
    columns += [f"loss at {length:,}, by cache" for length in cached]
    columns += ["cost within the trained length, %", "cost, low", "cost, high"]
    columns += ["passes the guard", "can be written", "chosen"]
    rows = []
    for entry in choice.judged:
        row = [entry.method.name, *entry.drift.losses_NR.mean(0)]
        row += _mean_ranks(entry) if choice.learned else []
        row += [None] * len(cached) if entry.cached is None else list(entry.cached.losses_NR.mean(0)[1:])
        answers = ["yes" if holds else "no" for holds in (entry.passes, entry.writable)]
        row += (0.0, None, None) if entry.cost is None else entry.cost_percent
        rows.append([*row, *answers, "chosen" if entry is chosen else ""])
    before, after = (float(entry.drift.losses_NR[:, -1].mean()) for entry in (plain, chosen))
    questions = ""
    if plain.retrieval is not None:
        counts = [f"{count} questions of {task}" for task, count in plain.retrieval.questions.items()]
        questions = f" and {', '.join(counts)} (of methods that could be chosen)"
    method = (
        f"{len(chosen.drift.losses_NR)} texts{questions} that neither the halving nor the search has read. Guard: the "
        f"cost on texts of {choice.trained:,} tokens is shown to be below {GUARD:.0%} of the loss (one-sided bound, "
        "simultaneous over methods). Of those that pass, the one that is least behind the best in what it does worse "
        f"beyond the trained length: {GUARD:.0%} of the mean loss counts as much as {100 * RANK_STEP:.0f} points of "
        "rank."
    )
    if cached:
        method += (
            " Where frequencies depend on the length of a call, texts are read by a cache too, "
            f"{choice.trained:,} tokens at once and the others one by one, and the worse of the two counts."
        )
    return Finding(
        "extend.choice",
        f"What makes it read {choice.longest:,} tokens, and what does that cost on short text?",
        describe_choice(choice) + _describe_unwritten(choice),
        after,
        "nats per token",
        references=(Reference("as trained", before),) if np.isfinite(before) else (),
        light="good" if chosen is not plain else "warn",
        table=Table.of(columns, rows),
        figure=_draw(choice),
        method=(
            f"{method} Of methods within {EQUAL:.0%} of that the one is chosen that depends least on the length of a "
            "call."
        ),
        source="LongRoPE (Ding et al. 2024) for the search; the rules and schemes name their own",
        details=DETAILS,
    )


def _draw(choice: Choice) -> Figure:
    plain, chosen = choice.judged[0].method.name, choice.chosen.method.name

    def draw_lines(values: Mapping[str, Any], **rest: Any) -> Figure:
        """Draw a line of each method over the lengths, without those that could not be read."""
        columns = {}
        for name, row in values.items():
            pairs = zip(choice.judged[0].drift.lengths, row, strict=True)
            known = {f"{length:,}": value for length, value in pairs if value is not None and np.isfinite(value)}
            columns[name] = known or None
        return draw_columns(
            "line", None, columns, main=chosen, reference={plain} - {chosen}, xlabel="tokens of text", **rest
        )

    losses = {entry.method.name: entry.drift.losses_NR.mean(0) for entry in choice.judged}
    figures = [draw_lines(losses, panel="Loss of the same last tokens", ylabel="nats per token")]
    if choice.learned:
        ranks = {entry.method.name: _mean_ranks(entry) for entry in choice.judged}
        bounds: Any = {"ylabel": "rank of the right value", "ylim": (0, 1.02), "levels": {"chance": CHANCE}}
        figures.append(draw_lines(ranks, panel="Retrieval", **bounds))
    costs = {entry.method.name: entry.cost_percent for entry in choice.judged if entry.cost is not None}
    values, low, high = ([cost[place] for cost in costs.values()] for place in range(3))
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
    # Those that stayed for most texts first, and of these the smallest loss.
    ranked = sorted(choice.tried.items(), key=lambda pair: (-pair[1][1], pair[1][0]))
    best, (least, most) = ranked[0]
    best = "the model as it is" if best == choice.judged[0].method.name else best
    rows = [(name, loss if np.isfinite(loss) else None, count) for name, (loss, count) in ranked]
    left_out = f" Methods that need another attention were not tried: {choice.left_out}." if choice.left_out else ""
    return Finding(
        "extend.tried",
        "What was tried before the judgement?",
        f"{len(choice.tried)} methods; of those that stayed until the last round ({most} texts) {best} had the "
        f"smallest loss in the later half of texts of {choice.longest:,} tokens, {least:.3f} nats.",
        light="info",
        table=Table.of(["method", f"loss in the later half of {choice.longest:,} tokens", "texts"], rows),
        method=(
            "Successive halving on paired losses: every method on few texts, the better half on twice as many. These "
            f"losses chose the finalists, so they are no measure of them; the judgement is.{left_out}"
        ),
        details=DETAILS,
    )
