"""What each variant costs, by medians over its seeds."""

from __future__ import annotations

from dataclasses import replace

from clockhands.comparison.cost_findings import find_costs
from clockhands.comparison.verdicts import judge
from tests.comparison.planted import results


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
