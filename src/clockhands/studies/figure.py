"""The picture of a study: its verdicts, or what its TOML asks for, a line a variant or a measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clockhands.comparison import Comparison, conclude
from clockhands.comparison.trial import Trial
from clockhands.comparison.trial_findings import list_course
from clockhands.findings import Figure, Mark, Panel, join_words
from clockhands.studies.study import Study


def draw_study(study: Study, comparison: Comparison) -> Figure:
    """Return the figure of ``[figure]``, or else that of the verdicts.

    Raises ValueError if no trial has finished of the plan, or of a variant that ``[figure]`` draws.

    ``along``: ``measures`` (x is the measures, a line is a variant) or ``variants`` (the other way round). ``variants``
    and ``measures`` map what is drawn to its label. ``when``: ``before`` or ``after`` training. Or ``along``:
    ``lengths`` (x is the splits of ``splits``, where "" is the test split; y is the loss; a line is a variant).
    Or ``along``: ``steps`` (x is the step of training, y what was measured at its evaluations; a line is one of
    ``measures`` in one of ``variants``). Lines are means over seeds, with bands from the lowest to the highest.
    """
    if study.figure is None:
        figure = conclude(comparison)["compare.verdict"].figure
        if figure is None:
            raise ValueError(f"no trial of the study {study.name} has finished, so there is nothing to draw")
        return figure
    unfinished = [variant for variant in study.figure["variants"] if not comparison.get_trials(variant)]
    if unfinished:
        raise ValueError(
            f"the figure of the study {study.name} draws {join_words(unfinished)}, of which no trial finished"
        )
    if study.figure["along"] == "lengths":
        return _draw_lengths(study.figure, comparison)
    if study.figure["along"] == "steps":
        return _draw_steps(study.figure, comparison)
    return _draw_measures(study.figure, comparison)


def _draw_measures(form: Mapping[str, Any], comparison: Comparison) -> Figure:
    by_variant = form["along"] == "measures"
    points, lines = (form["measures"], form["variants"]) if by_variant else (form["variants"], form["measures"])

    def values(line: str, point: str) -> list[float]:
        variant, measure = (line, point) if by_variant else (point, line)
        return [getattr(trial.measured, form["when"])[measure] for trial in comparison.get_trials(variant)]

    marks: list[Mark] = []
    for line, label in lines.items():
        marks += _draw_line(label, tuple(points.values()), [values(line, point) for point in points])
    return Figure((Panel(tuple(marks), xlabel=form["xlabel"], ylabel=form["ylabel"], ylim=(0.0, 1.02)),))


def _draw_lengths(form: Mapping[str, Any], comparison: Comparison) -> Figure:
    def loss(trial: Trial, split: str) -> float:
        longer = trial.longer[split].loss if split else trial.scores["loss"]
        return float("nan") if longer is None else longer

    marks: list[Mark] = []
    for variant, label in form["variants"].items():
        seeds = [[loss(trial, split) for trial in comparison.get_trials(variant)] for split in form["splits"]]
        marks += _draw_line(label, tuple(form["splits"].values()), seeds)
    return Figure((Panel(tuple(marks), xlabel=form["xlabel"], ylabel=form["ylabel"]),))


def _draw_steps(form: Mapping[str, Any], comparison: Comparison) -> Figure:
    marks: list[Mark] = []
    for variant, variant_label in form["variants"].items():
        for measure, label in form["measures"].items():
            course = list_course(comparison, variant, measure)
            name = ", ".join(part for part in (variant_label, label) if part)  # of one variant its label can be ""
            marks += _draw_line(name, tuple(course), list(course.values()))
    return Figure((Panel(tuple(marks), xlabel=form["xlabel"], ylabel=form["ylabel"]),))


def _draw_line(label: str, x: tuple[Any, ...], seeds: Sequence[Sequence[float]]) -> list[Mark]:
    low, high = (tuple(float(edge(values)) for values in seeds) for edge in (min, max))
    return [
        Mark("band", label, x=x, low=low, high=high),
        Mark("line", label, x=x, y=tuple(float(np.mean(values)) for values in seeds)),
    ]
