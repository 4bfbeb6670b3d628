"""Findings of the loss: as it falls in training, and on text longer than any that was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from clockhands.comparison.folder import Results
from clockhands.comparison.verdicts import Judged
from clockhands.findings import Figure, Finding, Mark, Panel, Table

MOST_LINES = 8
"""Of more variants than a reader can tell apart in one picture, the baseline and those that end lowest are drawn."""
_TARGET = ("seeds at the target", "median step", "median second")


def curves(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """Validation loss by step, mean over seeds and a band from the lowest to the highest."""
    marks: dict[str, list[Mark]] = {}
    final: list[tuple[str, float, float, float]] = []
    highest = 0.0
    for one in judged:
        steps, rows_SC = _curves(results, one.name)
        if len(rows_SC):
            low, mean, high = (f(rows_SC, axis=0) for f in (np.min, np.mean, np.max))
            band = Mark("band", one.name, x=steps, low=tuple(low.tolist()), high=tuple(high.tolist()))
            marks[one.name] = [band, Mark("line", one.name, x=steps, y=tuple(mean.tolist()))]
            highest = max(highest, float(mean.max()))
            final.append((one.name, float(mean[-1]), float(low[-1]), float(high[-1])))
    if not final:
        return
    best = min(final, key=lambda row: row[1])
    drawn, title = _drawn({row[0]: row[1] for row in final}, results.plan.baseline)
    scale: Literal["linear", "log"] = "log" if highest > 10 * best[1] else "linear"  # else no power of ten is in view
    shown = tuple(mark for name in drawn for mark in marks[name])
    yield Finding(
        name="compare.curves",
        question="How do they learn?",
        verdict=f"The lowest validation loss at the end is {best[1]:.3f} nats per token, that of {best[0]}.",
        value=best[1],
        unit="nats per token",
        interval=(best[2], best[3]),
        table=Table.of(
            ("variant", "last validation loss", "lowest seed", "highest seed", *_TARGET),
            [(*row, *_reached(results, row[0])) for row in final],
        ),
        figure=Figure((Panel(shown, title=title, xlabel="step", ylabel="validation loss", yscale=scale),)),
        method="Lines are means over seeds; bands reach from the lowest to the highest seed.",
    )


def _reached(results: Results, name: str) -> tuple[Any, ...]:
    hits = [one["reached"] for one in results.of(name) if one.get("reached")]
    if not hits:
        return 0, None, None
    return len(hits), float(np.median([h["step"] for h in hits])), float(np.median([h["seconds"] for h in hits]))


def lengths(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """Loss beyond the trained length, split by split."""
    rows: list[tuple[Any, ...]] = []
    marks: dict[str, Mark] = {}
    ends: dict[str, float] = {}
    for one in judged:
        splits = {name: _beyond(results, one.name, name) for name in _splits(results)}
        rows += [(one.name, name, *values) for name, values in splits.items()]
        places = [(name, values[0]) for name, values in splits.items() if values[0] is not None]
        if places:
            ends[one.name] = places[-1][1]
            marks[one.name] = Mark("line", one.name, x=tuple(p[0] for p in places), y=tuple(p[1] for p in places))
    if not marks:
        return
    split = _splits(results)[0]
    drawn, title = _drawn(ends, results.plan.baseline)
    lines = tuple(marks[name] for name in drawn)
    best = min((row for row in rows if row[1] == split and row[2] is not None), key=lambda row: float(row[2]))
    yield Finding(
        name="compare.lengths",
        question="What do they do with longer text than they were trained on?",
        verdict=f"On {split} the lowest loss is {best[2]:.2f} nats per token [{best[3]:.2f}, {best[4]:.2f}], that of "
        f"{best[0]}.",
        value=best[2],
        unit="nats per token",
        interval=(best[3], best[4]),
        table=Table.of(("variant", "split", "loss", "lowest seed", "highest seed", "exact match %", "refused"), rows),
        figure=Figure((Panel(lines, title=title, xlabel="split", ylabel="loss, nats per token"),)),
        method="Splits whose every text is longer than all training text; means over seeds, lowest and highest seed.",
    )


def _drawn(ends: dict[str, float], baseline: str) -> tuple[list[str], str]:
    """Whom to draw, in their order, and a title where some are left out; ``ends``: the last loss of each."""
    lowest = sorted((name for name in ends if name != baseline), key=lambda name: ends[name])
    chosen = {baseline, *lowest[: MOST_LINES - 1]}
    said = "" if len(chosen) >= len(ends) else f"{baseline} and the {MOST_LINES - 1} lowest of the others"
    return [name for name in ends if name in chosen], said


def _curves(results: Results, name: str) -> tuple[tuple[int, ...], Any]:
    rows = [[point for point in one["curve"] if point[2] is not None] for one in results.of(name)]
    steps = sorted(set.intersection(*({point[0] for point in row} for row in rows))) if rows else []
    return tuple(steps), np.array([[p[2] for p in row if p[0] in steps] for row in rows] if steps else [])


def _splits(results: Results) -> list[str]:
    return list(dict.fromkeys(name for one in results.trials for name in one.get("longer", {})))


def _beyond(results: Results, variant: str, split: str) -> tuple[Any, ...]:
    found = [one["longer"][split] for one in results.of(variant) if split in one.get("longer", {})]
    losses = [one["loss"] for one in found if "loss" in one]
    exact = [one["exact"] for one in found if "exact" in one]
    refused = next((one["refused"] for one in found if "refused" in one), None)
    three = (float(np.mean(losses)), min(losses), max(losses)) if losses else (None, None, None)
    return (*three, float(np.mean(exact)) if exact else None, refused)
