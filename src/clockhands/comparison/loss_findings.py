"""Findings of the loss: as it falls in training, and on text longer than any that was trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from clockhands.comparison.results import Comparison
from clockhands.comparison.verdicts import Verdict
from clockhands.findings import Figure, Finding, Mark, Panel, Table
from clockhands.shapes import Float

MOST_LINES = 8
"""Of more variants than a reader can tell apart in one picture, the baseline and those that end lowest are drawn."""
_TARGET = ("seeds at the target", "median step", "median second")


def find_curves(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the validation loss by step: means over seeds, and bands from the lowest to the highest."""
    marks: dict[str, list[Mark]] = {}
    final: list[tuple[str, float, float, float]] = []
    highest = 0.0
    for variant in (verdict.variant for verdict in verdicts):
        steps, losses_SC = _list_validation_losses(comparison, variant)
        if len(losses_SC):
            low, mean, high = (f(losses_SC, axis=0) for f in (np.min, np.mean, np.max))
            band = Mark("band", variant, x=steps, low=tuple(low.tolist()), high=tuple(high.tolist()))
            marks[variant] = [band, Mark("line", variant, x=steps, y=tuple(mean.tolist()))]
            highest = max(highest, float(mean.max()))
            final.append((variant, float(mean[-1]), float(low[-1]), float(high[-1])))
    if final:
        yield _make_curves_finding(comparison, marks, final, highest)


def _make_curves_finding(
    comparison: Comparison, marks: dict[str, list[Mark]], final: list[tuple[str, float, float, float]], highest: float
) -> Finding:
    """Return the finding of the validation losses; ``final`` has the last of each variant, with its range."""
    best = min(final, key=lambda row: row[1])
    drawn, title = _choose_lines({row[0]: row[1] for row in final}, comparison.plan.baseline)
    scale: Literal["linear", "log"] = "log" if highest > 10 * best[1] else "linear"  # else no power of ten is in view
    lines = tuple(mark for variant in drawn for mark in marks[variant])
    return Finding(
        name="compare.curves",
        question="How do they learn?",
        verdict=f"The lowest mean validation loss at the last evaluation is {best[1]:.3f} nats per token (seeds from "
        f"{best[2]:.3f} to {best[3]:.3f}), that of {best[0]}.",
        value=best[1],
        unit="nats per token",
        interval=(best[2], best[3]),
        table=Table.of(
            ("variant", "last validation loss", "lowest seed", "highest seed", *_TARGET),
            [(*row, *_summarise_target(comparison, row[0])) for row in final],
        ),
        figure=Figure(
            (Panel(lines, title=title, xlabel="step", ylabel="validation loss, nats per token", yscale=scale),),
            title="Loss while they learn",
        ),
        method="Lines are means over seeds; bands, and the two numbers beside the value, reach from the lowest to the "
        "highest seed. No test compares these losses.",
    )


def _summarise_target(comparison: Comparison, variant: str) -> tuple[Any, ...]:
    """Return how many seeds reached the target, and their median step and second: the columns ``_TARGET``."""
    hits = [trial.reached for trial in comparison.get_trials(variant) if trial.reached is not None]
    if not hits:
        return 0, None, None
    return len(hits), float(np.median([hit.step for hit in hits])), float(np.median([hit.seconds for hit in hits]))


def find_longer_text(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the loss beyond the trained length, split by split."""
    rows: list[tuple[Any, ...]] = []
    marks: dict[str, Mark] = {}
    ends: dict[str, float] = {}
    for variant in (verdict.variant for verdict in verdicts):
        splits = {split: _make_longer_text_row(comparison, variant, split) for split in _list_longer_splits(comparison)}
        rows += [(variant, split, *values) for split, values in splits.items()]
        points = [(split, values[0]) for split, values in splits.items() if values[0] is not None]
        if points:
            ends[variant] = points[-1][1]
            marks[variant] = Mark("line", variant, x=tuple(x for x, _ in points), y=tuple(y for _, y in points))
    if marks:
        yield _make_longer_text_finding(comparison, rows, marks, ends)


def _make_longer_text_finding(
    comparison: Comparison, rows: list[tuple[Any, ...]], marks: dict[str, Mark], ends: dict[str, float]
) -> Finding:
    """Return the finding of the losses on longer text; ``ends`` has the last loss of each variant."""
    # The first split that any variant could read: all of them may refuse one, and read another.
    split = next(row[1] for row in rows if row[2] is not None)
    drawn, title = _choose_lines(ends, comparison.plan.baseline)
    lines = tuple(marks[variant] for variant in drawn)
    best = min((row for row in rows if row[1] == split and row[2] is not None), key=lambda row: float(row[2]))
    return Finding(
        name="compare.lengths",
        question="What do they do with longer text than they were trained on?",
        verdict=f"On {split} the lowest mean loss is {best[2]:.2f} nats per token (seeds from {best[3]:.2f} to "
        f"{best[4]:.2f}), that of {best[0]}.",
        value=best[2],
        unit="nats per token",
        interval=(best[3], best[4]),
        table=Table.of(("variant", "split", "loss", "lowest seed", "highest seed", "exact match %", "refused"), rows),
        figure=Figure(
            (Panel(lines, title=title, xlabel="split", ylabel="loss, nats per token"),),
            title="Loss on longer text",
        ),
        method="Splits whose every text is longer than all training text; means over seeds, with the lowest and the "
        "highest seed. No test compares these losses.",
    )


def _choose_lines(ends: dict[str, float], baseline: str) -> tuple[list[str], str]:
    """Return the variants to draw, and a title where some are left out; ``ends`` has the last loss of each."""
    lowest = sorted((variant for variant in ends if variant != baseline), key=lambda variant: ends[variant])
    chosen = {baseline, *lowest[: MOST_LINES - 1]}
    title = "" if len(chosen) >= len(ends) else f"{baseline} and the {MOST_LINES - 1} lowest of the others"
    return [variant for variant in ends if variant in chosen], title


def _list_validation_losses(comparison: Comparison, variant: str) -> tuple[tuple[int, ...], Float[np.ndarray, "S C"]]:
    """Return the steps at which every seed was evaluated, and the losses of S seeds at these C steps."""
    curves = [
        {point.step: point.validation_loss for point in trial.curve if point.validation_loss is not None}
        for trial in comparison.get_trials(variant)
    ]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    return tuple(steps), np.array([[curve[step] for step in steps] for curve in curves] if steps else [])


def _list_longer_splits(comparison: Comparison) -> list[str]:
    """Return the splits of longer text that any trial was scored on."""
    return list(dict.fromkeys(split for trial in comparison.trials for split in trial.longer))


def _make_longer_text_row(comparison: Comparison, variant: str, split: str) -> tuple[Any, ...]:
    """Return mean, lowest and highest loss over seeds, mean exact match, and why it was refused."""
    scores = [trial.longer[split] for trial in comparison.get_trials(variant) if split in trial.longer]
    losses = [score.loss for score in scores if score.loss is not None]
    exact = [score.exact for score in scores if score.exact is not None]
    refused = next((score.refused for score in scores if score.refused is not None), None)
    three = (float(np.mean(losses)), min(losses), max(losses)) if losses else (None, None, None)
    return (*three, float(np.mean(exact)) if exact else None, refused)
