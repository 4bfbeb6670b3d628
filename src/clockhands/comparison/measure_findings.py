"""Findings of what was measured inside the models of a comparison: before, during and after training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clockhands.comparison.results import Comparison
from clockhands.comparison.trial import Values
from clockhands.comparison.verdicts import Verdict
from clockhands.findings import Figure, Finding, Mark, Panel, Table

Row = tuple[Any, ...]
METHOD = "Means over seeds with the lowest and the highest seed, as `clockhands inspect` measures them."
STEP = (
    "Means over seeds with the lowest and the highest seed. The best map of one row to the next in at most ten "
    "principal components, judged on a quarter of the rows that is held out at random (`clockhands inspect` holds out "
    "whole stretches, and compares with standing still)."
)
HALFWAY = " Halfway: the evaluation nearest to the middle of training."
BEFORE, AFTER = 1, 7
"""Where a row has the mean before and after training; the lowest and the highest seed stand behind each."""


def find_measurements(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield one finding for each number that was measured inside the models."""
    names = dict.fromkeys(name for trial in comparison.trials for name in trial.measured.after)
    for name in names:
        rows = [_make_row(comparison, verdict.variant, name) for verdict in verdicts]
        rows = [row for row in rows if row[BEFORE] is not None and row[AFTER] is not None]
        if rows:
            yield _make_finding(comparison, name, rows)


def _make_finding(comparison: Comparison, name: str, rows: list[Row]) -> Finding:
    """Return the finding of one number that was measured inside the models."""
    courses = {row[0]: course for row in rows if (course := list_course(comparison, row[0], name))}
    three = ("", "low", "high")
    columns = ("variant", "before", *three[1:], *(("halfway", *three[1:]) if courses else ()), "after", *three[1:])
    first = rows[0]
    return Finding(
        name=f"inside.{name}",
        question=f"Inside: {name}",
        verdict=f"{first[0]}: {first[BEFORE]:.3g} before training, {first[AFTER]:.3g} after (seeds from "
        f"{first[AFTER + 1]:.3g} to {first[AFTER + 2]:.3g}).",
        value=first[AFTER],
        interval=(first[AFTER + 1], first[AFTER + 2]),
        table=Table.of(columns, rows if courses else [(*row[:4], *row[AFTER:]) for row in rows]),
        figure=_draw_by_step(courses, name) if courses else _draw_before_and_after(rows, name),
        method=(STEP if name.startswith("error of a step") else METHOD) + (HALFWAY if courses else ""),
    )


def _make_row(comparison: Comparison, variant: str, name: str) -> Row:
    """Return the variant, and mean, lowest and highest seed before, halfway and after."""
    measured = [trial.measured for trial in comparison.get_trials(variant)]
    course = list_course(comparison, variant, name)
    middle = min(course, key=lambda step: abs(step - max(course) / 2), default=0)
    before, after = (_collect([getattr(m, when) for m in measured], name) for when in ("before", "after"))
    return (variant, *_summarise(before), *_summarise(course.get(middle, [])), *_summarise(after))


def _collect(measured: Sequence[Values], name: str) -> list[float]:
    """Return the values of one name, of the seeds that have it."""
    return [values[name] for values in measured if name in values]


def list_course(comparison: Comparison, variant: str, name: str) -> dict[int, list[float]]:
    """Return by step the values of all seeds that have that step; the step 0 is before training."""
    course: dict[int, list[float]] = {}
    for trial in comparison.get_trials(variant):
        during = [(step, values) for step, values in trial.measured.during if name in values]
        start = [(0, trial.measured.before)] if during and name in trial.measured.before else []
        for step, values in [*start, *during]:
            course.setdefault(step, []).append(values[name])
    return course


def _summarise(values: Sequence[float]) -> tuple[float | None, ...]:
    """Return mean, lowest and highest value; None three times where there is none."""
    return (float(np.mean(values)), min(values), max(values)) if values else (None, None, None)


def _draw_by_step(courses: dict[str, dict[int, list[float]]], name: str) -> Figure:
    """Draw the means over seeds by step, a line a variant."""
    marks = tuple(
        Mark("line", variant, x=tuple(course), y=tuple(float(np.mean(values)) for values in course.values()))
        for variant, course in courses.items()
    )
    positive = all(value > 0 for course in courses.values() for values in course.values() for value in values)
    panel = Panel(marks, xlabel="step", ylabel=name, yscale="log" if positive else "linear")
    return Figure((panel,), title=f"{name} during training".capitalize())


def _draw_before_and_after(rows: list[Row], name: str) -> Figure:
    """Draw the mean of every variant before and after training, with the range of its seeds."""
    names = tuple(row[0] for row in rows)
    marks = tuple(
        Mark(
            "points",
            label,
            x=tuple(row[i] for row in rows),
            y=names,
            low=tuple(row[i + 1] for row in rows),
            high=tuple(row[i + 2] for row in rows),
        )
        for label, i in (("before training", BEFORE), ("after training", AFTER))
    )
    return Figure((Panel(marks, xlabel=name),), title=f"{name} of every variant".capitalize())
