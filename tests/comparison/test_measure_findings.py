"""What was measured inside the models of a comparison."""

from __future__ import annotations

from dataclasses import replace

from clockhands.comparison.trial import Measurements
from clockhands.comparison.verdict_findings import conclude
from tests.comparison.planted import results


def test_the_figure_names_the_rows_of_the_table() -> None:
    found = conclude(results())["inside.loud"]
    names = tuple(row[0] for row in found.table.rows)
    panel = found.figure.panels[0]
    assert [mark.y for mark in panel.marks if mark.kind == "points"] in ([names, names], [])
    assert set(names) == {"base", "better", "same", "worse"}


def test_the_range_is_that_of_the_seeds_and_says_so() -> None:
    comparison = results()
    trials = tuple(
        replace(trial, inside=Measurements({"loud": 1.0}, (), {"loud": float(trial.seed)}))
        for trial in comparison.trials
    )
    found = conclude(replace(comparison, trials=trials))["inside.loud"]
    assert found.verdict == "base: 1 before training, 3.5 after (seeds from 1 to 6)." and found.interval == (1.0, 6.0)


def test_a_variant_that_has_a_measure_at_one_end_of_training_alone_is_left_out() -> None:
    comparison = results()
    one_end = {"base": Measurements({"loud": 1.0}), "better": Measurements(after={"loud": 1.0})}
    trials = tuple(replace(trial, inside=one_end.get(trial.variant, trial.inside)) for trial in comparison.trials)
    found = conclude(replace(comparison, trials=trials))["inside.loud"]
    assert [row[0] for row in found.table.rows] == ["same", "worse"] and found.verdict.startswith("same: 1 before")
