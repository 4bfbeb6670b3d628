"""Findings beside the verdicts: the loss in training and on longer text, costs, and what was measured inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from clockhands.comparison.plan import METRICS
from clockhands.comparison.results import Comparison
from clockhands.comparison.verdicts import Verdict
from clockhands.findings import Finding, Table, draw_columns, draw_seeds

MOST_LINES = 8
"""Of more variants than a reader can tell apart in one picture, the baseline and those that end lowest are drawn."""
STEP_METHOD = (
    ". The best map of one row to the next in at most ten principal components, judged on a quarter of the rows that "
    "is held out at random (`clockhands inspect` holds out whole stretches, and compares with standing still)."
)
Courses = dict[str, dict[Any, list[float]]]
"""By variant and step (or split), the values of all seeds."""


def find_curves(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the validation loss by step."""
    courses: Courses = {}
    for name in (verdict.variant for verdict in verdicts):
        losses = [
            {point.step: point.validation_loss for point in trial.curve if point.validation_loss is not None}
            for trial in comparison.get_trials(name)
        ]
        steps = sorted(set.intersection(*map(set, losses))) if losses else []  # at which every seed was evaluated
        if steps:
            courses[name] = {step: [by_step[step] for by_step in losses] for step in steps}
    if not courses:
        return
    last = {name: list(course.values())[-1] for name, course in courses.items()}
    best = min(last, key=lambda name: _mean(last[name]))
    highest = max(_mean(losses) for course in courses.values() for losses in course.values())
    scale: Literal["linear", "log"] = "log" if highest > 10 * _mean(last[best]) else "linear"  # else no tick is in view
    rows = []
    for name, ended in last.items():
        hits = [trial.reached for trial in comparison.get_trials(name) if trial.reached]
        steps_and_seconds = [_median([getattr(hit, field) for hit in hits]) for field in ("step", "seconds")]
        rows.append((name, *_summarise(ended), len(hits), *steps_and_seconds))
    low, high = min(last[best]), max(last[best])
    targets = ("seeds at the target", "median step", "median second")
    yield Finding(
        name="compare.curves",
        question="How do they learn?",
        verdict=f"The lowest mean validation loss at the last evaluation is {_mean(last[best]):.3f} nats per token "
        f"(seeds from {low:.3f} to {high:.3f}), that of {best}.",
        value=_mean(last[best]),
        unit="nats per token",
        interval=(low, high),
        table=Table.of(("variant", "last validation loss", "lowest seed", "highest seed", *targets), rows),
        figure=draw_seeds(
            **_choose_lines(courses, comparison.plan.baseline), title="Loss while they learn", xlabel="step",
            ylabel="validation loss, nats per token", yscale=scale,
        ),
        method="Lines are means over seeds; bands, and the two numbers beside the value, reach from the lowest to the "
        "highest seed. No test compares these losses.",
    )  # fmt: skip


def find_longer_text(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the loss beyond the trained length, split by split."""
    splits = dict.fromkeys(split for trial in comparison.trials for split in trial.longer)
    courses: Courses = {}
    rows: list[tuple[Any, ...]] = []
    for name in (verdict.variant for verdict in verdicts):
        for split in splits:
            scores = [trial.longer[split] for trial in comparison.get_trials(name) if split in trial.longer]
            losses = [score.loss for score in scores if score.loss is not None]
            exact = [score.exact for score in scores if score.exact is not None]
            refused = next((score.refused for score in scores if score.refused is not None), None)
            rows.append((name, split, *_summarise(losses), _mean(exact) if exact else None, refused))
            if losses:
                courses.setdefault(name, {})[split] = losses
    if not courses:
        return
    # The first split that any variant could read: all of them may refuse one, and read another.
    split = next(row[1] for row in rows if row[2] is not None)
    best, _, mean, low, high, *_ = min(
        (row for row in rows if row[1] == split and row[2] is not None), key=lambda row: row[2]
    )
    yield Finding(
        name="compare.lengths",
        question="What do they do with longer text than they were trained on?",
        verdict=f"On {split} the lowest mean loss is {mean:.2f} nats per token (seeds from {low:.2f} to {high:.2f}), "
        f"that of {best}.",
        value=mean,
        unit="nats per token",
        interval=(low, high),
        table=Table.of(("variant", "split", "loss", "lowest seed", "highest seed", "exact match %", "refused"), rows),
        figure=draw_seeds(
            **_choose_lines(courses, comparison.plan.baseline), title="Loss on longer text", xlabel="split",
            ylabel="loss, nats per token",
        ),
        method="Splits whose every text is longer than all training text; means over seeds, with the lowest and the "
        "highest seed. No test compares these losses.",
    )  # fmt: skip


def _choose_lines(courses: Courses, baseline: str) -> dict[str, Any]:
    """Return the courses to draw, and a title of the panel where some are left out: those that end highest."""
    ends = {name: _mean(list(course.values())[-1]) for name, course in courses.items()}
    lowest = sorted((name for name in ends if name != baseline), key=lambda name: ends[name])
    chosen = {baseline, *lowest[: MOST_LINES - 1]}
    panel = "" if len(chosen) >= len(ends) else f"{baseline} and the {MOST_LINES - 1} lowest of the others"
    return {"courses": {name: course for name, course in courses.items() if name in chosen}, "panel": panel}


def find_costs(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield quality against parameters, time and memory."""
    medians = {
        "seconds": "seconds",
        "peak MiB": "peak_mib",
        "target tokens/s in training": "tokens_per_second",
        "tokens/s written": "written_per_second",
    }
    rows: list[tuple[Any, ...]] = []
    for verdict in verdicts:
        if trials := comparison.get_trials(verdict.variant):
            cost = comparison.costs[verdict.variant]
            measured = [_median([getattr(trial, field) for trial in trials]) for field in medians.values()]
            rows.append((verdict.variant, verdict.score, cost.parameters, cost.steps, cost.flops, *measured))
    if not rows:
        return
    smallest, largest = min(row[2] for row in rows), max(row[2] for row in rows)
    sizes = f"All have {largest:,}" if smallest == largest else f"Between {smallest:,} and {largest:,}"
    metric = METRICS[comparison.plan.metric]
    machines = dict.fromkeys(trial.machine for trial in comparison.trials if trial.machine is not None)
    yield Finding(
        name="compare.costs",
        question="What does each cost?",
        verdict=f"{sizes} parameters; medians of time, memory and speed are in the table.",
        value=largest,
        unit="parameters of the largest",
        table=Table.of(("variant", metric, "parameters", "steps", "operations a step", *medians), rows),
        figure=draw_columns(
            "points", None, {str(row[0]): {row[5]: row[1]} for row in rows}, title="Score by time of training",
            xlabel="seconds of training (median)", ylabel=metric,
        ),
        method=f"Medians over seeds on {' and '.join(machines) or 'the machine that ran them'}; other work there makes "
        "seconds longer, not shorter.",
    )  # fmt: skip


def find_measurements(comparison: Comparison, verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield one finding for each number that was measured inside the models."""
    ends = ("low", "high")
    for name in dict.fromkeys(name for trial in comparison.trials for name in trial.measured.after):
        rows: list[tuple[Any, ...]] = []  # of each variant, mean, lowest and highest seed before, halfway and after
        courses: Courses = {}
        for variant in (verdict.variant for verdict in verdicts):
            measured = [trial.measured for trial in comparison.get_trials(variant)]
            before = [moments.before[name] for moments in measured if name in moments.before]
            after = [moments.after[name] for moments in measured if name in moments.after]
            if before and after:
                course = list_course(comparison, variant, name)
                middle = min(course, key=lambda step: abs(step - max(course) / 2), default=0)
                halfway = _summarise(course.get(middle, []))
                rows.append((variant, *_summarise(before), *halfway, *_summarise(after)))
                courses |= {variant: course} if course else {}
        if not rows:
            continue
        columns: tuple[str, ...] = ("variant", "before", *ends, "halfway", *ends, "after", *ends)
        title = f"{name} during training" if courses else f"{name} of every variant"
        if courses:
            positive = all(value > 0 for course in courses.values() for values in course.values() for value in values)
            scale: Literal["linear", "log"] = "log" if positive else "linear"
            figure = draw_seeds(courses, title=title.capitalize(), xlabel="step", ylabel=name, yscale=scale)
        else:
            moments = {"before training": 1, "after training": 7}
            figure = draw_columns(
                "points", [row[0] for row in rows], {label: [row[at] for row in rows] for label, at in moments.items()},
                intervals={
                    label: ([row[at + 1] for row in rows], [row[at + 2] for row in rows])
                    for label, at in moments.items()
                },
                title=title.capitalize(), sideways=True, xlabel=name,
            )  # fmt: skip
        variant, before, *_, after, low, high = rows[0]
        yield Finding(
            name=f"inside.{name}",
            question=f"Inside: {name}",
            verdict=f"{variant}: {before:.3g} before training, {after:.3g} after (seeds from {low:.3g} to {high:.3g}).",
            value=after,
            interval=(low, high),
            table=Table.of(columns, rows)
            if courses
            else Table.of((*columns[:4], *columns[7:]), [(*row[:4], *row[7:]) for row in rows]),
            figure=figure,
            method="Means over seeds with the lowest and the highest seed"
            + (STEP_METHOD if name.startswith("error of a step") else ", as `clockhands inspect` measures them.")
            + (" Halfway: the evaluation nearest to the middle of training." if courses else ""),
        )


def list_course(comparison: Comparison, variant: str, name: str) -> dict[int, list[float]]:
    """Return by step the values of all seeds that have that step; the step 0 is before training."""
    course: dict[int, list[float]] = {}
    for trial in comparison.get_trials(variant):
        during = [(step, values) for step, values in trial.measured.during if name in values]
        start = [(0, trial.measured.before)] if during and name in trial.measured.before else []
        for step, values in [*start, *during]:
            course.setdefault(step, []).append(values[name])
    return course


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _summarise(values: Sequence[float]) -> tuple[float | None, ...]:
    """Return mean, lowest and highest value; None three times where there is none."""
    return (_mean(values), min(values), max(values)) if values else (None, None, None)
