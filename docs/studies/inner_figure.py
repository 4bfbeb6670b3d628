"""The picture of a study whose answer lies inside the models or in longer text: a line a variant or a measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clockhands.comparison.results import Comparison
from clockhands.comparison.trial import Trial
from clockhands.findings import Figure, Mark, Panel


def inner_figure(results: Comparison, asked: Mapping[str, Any]) -> Figure:
    """Means over seeds with bands from the lowest to the highest, as ``asked`` in questions.toml.

    ``along``: ``measures`` (x is the measures, a line is a variant) or ``variants`` (the other way round). ``variants``
    and ``measures`` map what is drawn to its label. ``when``: ``before`` or ``after`` training. Or ``along``:
    ``lengths`` (x is the splits of ``splits``, where "" is the test split; y is the loss; a line is a variant).
    """
    if asked["along"] == "lengths":
        return _longer_figure(results, asked)
    names, measures, when = asked["variants"], asked["measures"], asked["when"]
    points, lines = (measures, names) if asked["along"] == "measures" else (names, measures)

    def values(line: str, point: str) -> list[float]:
        name, measure = (line, point) if asked["along"] == "measures" else (point, line)
        return [getattr(trial.measured, when)[measure] for trial in results.trials_of(name)]

    marks: list[Mark] = []
    for line, label in lines.items():
        marks += _line(label, tuple(points.values()), [values(line, point) for point in points])
    return Figure((Panel(tuple(marks), xlabel=asked["xlabel"], ylabel=asked["ylabel"], ylim=(0.0, 1.02)),))


def _longer_figure(results: Comparison, asked: Mapping[str, Any]) -> Figure:
    def loss(trial: Trial, split: str) -> float:
        return float(trial.longer[split].loss if split else trial.scores["loss"])

    marks: list[Mark] = []
    for name, label in asked["variants"].items():
        seeds = [[loss(one, split) for one in results.trials_of(name)] for split in asked["splits"]]
        marks += _line(label, tuple(asked["splits"].values()), seeds)
    return Figure((Panel(tuple(marks), xlabel=asked["xlabel"], ylabel=asked["ylabel"]),))


def _line(label: str, x: tuple[Any, ...], seeds: Sequence[Sequence[float]]) -> list[Mark]:
    low, high = (tuple(float(edge(values)) for values in seeds) for edge in (min, max))
    return [
        Mark("band", label, x=x, low=low, high=high),
        Mark("line", label, x=x, y=tuple(float(np.mean(values)) for values in seeds)),
    ]
