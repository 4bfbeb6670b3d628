"""Findings of what was measured inside the models of a comparison: before, during and after training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from clockhands.comparison.folder import Results
from clockhands.comparison.verdicts import Judged
from clockhands.findings import Figure, Finding, Mark, Panel, Table

Row = tuple[Any, ...]
METHOD = "Means over seeds with the lowest and the highest seed, as `clockhands inspect` measures them."
STEP = (
    "Means over seeds with the lowest and the highest seed. The best map of one row to the next in at most ten "
    "principal components, judged on a quarter of the rows that is held out at random (`clockhands inspect` holds out "
    "whole stretches, and compares with standing still)."
)
HALFWAY = " Halfway: the evaluation nearest to the middle of training."


def insides(results: Results, judged: list[Judged]) -> Iterator[Finding]:
    """One finding a number that was measured inside."""
    names = dict.fromkeys(key for one in results.trials for key in one.get("inside", {}).get("after", {}))
    for name in names:
        variants = [one.name for one in judged]
        rows = [row for row in (_row(results, variant, name) for variant in variants) if row[1] is not None]
        if rows:
            yield _finding(results, name, rows)


def _finding(results: Results, name: str, rows: list[Row]) -> Finding:
    courses = {row[0]: course for row in rows if (course := _course(results, row[0], name))}
    three = ("", "low", "high")
    columns = ("variant", "before", *three[1:], *(("halfway", *three[1:]) if courses else ()), "after", *three[1:])
    shown = rows if courses else [(*row[:4], *row[7:]) for row in rows]
    first = rows[0]
    return Finding(
        name=f"inside.{name}",
        question=f"Inside: {name}",
        verdict=f"{first[0]}: {first[1]:.3g} before training, {first[7]:.3g} after [{first[8]:.3g}, {first[9]:.3g}].",
        value=first[7],
        interval=(first[8], first[9]),
        table=Table.of(columns, shown),
        figure=_by_step(courses, name) if courses else _before_and_after(rows, name),
        method=(STEP if name.startswith("error of a step") else METHOD) + (HALFWAY if courses else ""),
    )


def _row(results: Results, variant: str, name: str) -> Row:
    """Variant; mean, lowest and highest seed before, halfway and after."""
    trials = [one.get("inside", {}) for one in results.of(variant)]
    ends = {when: [one[when][name] for one in trials if name in one.get(when, {})] for when in ("before", "after")}
    course = _course(results, variant, name)
    middle = min(course, key=lambda step: abs(step - max(course) / 2), default=None)
    return (variant, *_three(ends["before"]), *_three(course.get(middle or 0, [])), *_three(ends["after"]))


def _course(results: Results, variant: str, name: str) -> dict[int, list[float]]:
    """By step, the values of all seeds that have that step; the step 0 is before training."""
    found: dict[int, list[float]] = {}
    for one in results.of(variant):
        inside = one.get("inside", {})
        seen = [(step, values) for step, values in inside.get("during", ()) if name in values]
        start = [(0, inside["before"])] if seen and name in inside.get("before", {}) else []
        for step, values in [*start, *seen]:
            found.setdefault(step, []).append(values[name])
    return found


def _three(values: list[float]) -> tuple[float | None, ...]:
    return (float(np.mean(values)), min(values), max(values)) if values else (None, None, None)


def _by_step(courses: dict[str, dict[int, list[float]]], name: str) -> Figure:
    marks = tuple(
        Mark("line", variant, x=tuple(course), y=tuple(float(np.mean(values)) for values in course.values()))
        for variant, course in courses.items()
    )
    positive = all(value > 0 for course in courses.values() for values in course.values() for value in values)
    return Figure((Panel(marks, xlabel="step", ylabel=name, yscale="log" if positive else "linear"),))


def _before_and_after(rows: list[Row], name: str) -> Figure:
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
        for label, i in (("before training", 1), ("after training", 7))
    )
    return Figure((Panel(marks, xlabel=name),))
