"""Findings beside the verdicts: losses, costs, what was measured inside."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from clockhands.comparison import trial_findings
from clockhands.comparison.trial import LongerText, Measurements
from clockhands.comparison.trial_findings import find_costs
from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import judge
from tests.comparison.planted import results


def test_a_crowd_is_not_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_findings, "MOST_LINES", 2)
    findings = conclude(results())
    for name in ("compare.curves", "compare.lengths"):
        panel = findings[name].figure.panels[0]
        drawn = {mark.label for mark in panel.marks}
        assert len(drawn) == 2 and "base" in drawn
        assert len({row[0] for row in findings[name].table.rows}) == 4
        assert panel.title == "base and the 1 lowest of the others"


def test_the_lowest_loss_is_told_with_the_range_of_its_seeds() -> None:
    found = conclude(results())["compare.curves"]
    lowest = min(found.table.rows, key=lambda row: row[1])
    assert (found.value, *found.interval) == lowest[1:4] and lowest[2] < lowest[1] < lowest[3]
    _, mean, low, high, *_ = lowest
    numbers = f"{mean:.3f} nats per token (seeds from {low:.3f} to {high:.3f}), that of {lowest[0]}."
    assert found.verdict == f"The lowest mean validation loss at the last evaluation is {numbers}"


def test_a_split_that_all_variants_refuse_is_passed_over() -> None:
    comparison = results()
    trials = tuple(
        replace(trial, longer={"longer-9": LongerText(refused="no such position"), **trial.longer})
        for trial in comparison.trials
    )
    found = conclude(replace(comparison, trials=trials))["compare.lengths"]
    assert (
        found.verdict
        == "On longer-7 the lowest mean loss is 5.50 nats per token (seeds from 3.00 to 8.00), that of base."
    )


def test_the_table_tells_which_seeds_reached_the_target_and_when() -> None:
    """Beside the loss of each variant: of how many seeds, the median step and second, from its own trials."""
    comparison = results()
    for row in conclude(comparison)["compare.curves"].table.rows:
        hits = [trial.reached for trial in comparison.get_trials(row[0]) if trial.reached is not None]
        expected = (len(hits), median(hit.step for hit in hits), median(hit.seconds for hit in hits))
        assert row[4:] == (expected if hits else (0, None, None))
    assert any(row[4] for row in conclude(comparison)["compare.curves"].table.rows)


def test_costs_are_medians_over_the_seeds_that_finished() -> None:
    comparison = results(lost=("better",))
    trials = tuple(replace(trial, seconds=float(trial.seed**2)) for trial in comparison.trials)
    comparison = replace(
        comparison,
        trials=trials,
        costs={
            name: replace(cost, parameters=1000 + place) for place, (name, cost) in enumerate(comparison.costs.items())
        },
    )
    (finding,) = find_costs(comparison, judge(comparison))
    column = list(finding.table.columns).index("seconds")
    assert [row[column] for row in finding.table.rows] == [12.5, 16.0, 12.5, 12.5], "of 1 to 6 squared, or 2 to 6"
    assert finding.verdict.startswith("Between 1,000 and 1,003 parameters")
    assert "on an abacus, 2 cores;" in finding.method


def test_nothing_is_said_of_costs_before_a_trial_finished() -> None:
    comparison = replace(results(), trials=())
    assert list(find_costs(comparison, judge(comparison))) == []


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
