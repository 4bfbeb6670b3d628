"""The picture of a study: its verdicts, or what its TOML asks for, a line a variant or a measure."""

from __future__ import annotations

from typing import Any

from clockhands.comparison import Comparison, conclude
from clockhands.comparison.findings import list_course
from clockhands.comparison.trial import Trial
from clockhands.findings import Figure, draw_seeds, join_words
from clockhands.studies.study import Study

Courses = dict[str, dict[Any, list[float]]]


def draw_study(study: Study, comparison: Comparison) -> Figure:
    """Return the figure of ``[figure]``, or else that of the verdicts.

    Raises ValueError if no trial has finished of the plan, or of a variant that ``[figure]`` draws.

    ``along``: ``measures`` (x is the measures, a line is a variant) or ``variants`` (the other way round). ``variants``
    and ``measures`` map what is drawn to its label. ``when``: ``before`` or ``after`` training. Or ``along``:
    ``lengths`` (x is the splits of ``splits``, where "" is the test split; y is the loss; a line is a variant).
    Or ``along``: ``steps`` (x is the step of training, y what was measured at its evaluations; a line is one of
    ``measures`` in one of ``variants``). Lines are means over seeds, with bands from the lowest to the highest.
    """
    form = study.figure
    if form is None:
        figure = conclude(comparison)["compare.verdict"].figure
        if figure is None:
            raise ValueError(f"no trial of the study {study.name} has finished, so there is nothing to draw")
        return figure
    variants, measures, along = form["variants"], form.get("measures", {}), form["along"]
    if unfinished := [variant for variant in variants if not comparison.get_trials(variant)]:
        raise ValueError(
            f"the figure of the study {study.name} draws {join_words(unfinished)}, of which no trial finished"
        )

    def list_losses(variant: str, split: str) -> list[float]:
        return [_get_loss(trial, split) for trial in comparison.get_trials(variant)]

    def list_values(variant: str, measure: str) -> list[float]:
        return [getattr(trial.measured, form["when"])[measure] for trial in comparison.get_trials(variant)]

    courses: Courses
    if along == "steps":
        courses = {
            # Of one variant its label can be "".
            ", ".join(part for part in (label, measured) if part): {**list_course(comparison, variant, measure)}
            for variant, label in variants.items()
            for measure, measured in measures.items()
        }
    elif along == "lengths":
        courses = {
            label: {shown: list_losses(variant, split) for split, shown in form["splits"].items()}
            for variant, label in variants.items()
        }
    elif along == "measures":
        courses = {
            label: {shown: list_values(variant, measure) for measure, shown in measures.items()}
            for variant, label in variants.items()
        }
    else:
        courses = {
            label: {shown: list_values(variant, measure) for variant, shown in variants.items()}
            for measure, label in measures.items()
        }
    if along in ("measures", "variants"):
        return draw_seeds(courses, xlabel=form["xlabel"], ylabel=form["ylabel"], ylim=(0.0, 1.02))
    return draw_seeds(courses, xlabel=form["xlabel"], ylabel=form["ylabel"])


def _get_loss(trial: Trial, split: str) -> float:
    """Return the loss on a split of longer text, or on the test split; NaN where the text was refused."""
    loss = trial.longer[split].loss if split else trial.scores["loss"]
    return float("nan") if loss is None else loss
