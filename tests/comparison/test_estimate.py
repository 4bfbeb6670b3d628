"""How long a plan takes: the arithmetic, by hand; and that everything of a short plan is measured."""

from __future__ import annotations

import pytest

from clockhands.comparison.cost import measure_costs
from clockhands.comparison.estimate import Overheads, estimate_plan, estimate_trial, measure_overheads
from clockhands.comparison.results import Cost
from tests.comparison.planted import plan

OVERHEADS = Overheads(worker=10.0, begin=3.0, step=0.01, validation=2.0, scoring=5.0)


def cost(steps: int, seconds: float) -> Cost:
    return Cost(parameters=1, steps=steps, flops=1, seconds=seconds, changes={})


def test_a_trial_is_its_beginning_its_steps_its_evaluations_and_its_scoring() -> None:
    assert estimate_trial(cost(100, 0.04), OVERHEADS, 30) == pytest.approx(3 + 100 * 0.05 + 3 * 2 + 5)
    assert estimate_trial(cost(100, 0.04), OVERHEADS, None) == pytest.approx(3 + 100 * 0.05 + 5)


def test_trials_go_to_the_worker_that_is_free() -> None:
    """Two seeds of 13 and 28 seconds (6 steps, evaluated at 4): of two workers one takes both short ones first."""
    made, costs = plan(), {"sinusoidal": cost(6, 0.49), "learned": cost(6, 2.99)}
    assert [estimate_trial(costs[name], OVERHEADS, 4) for name in costs] == pytest.approx([13, 28])
    assert estimate_plan(made, costs, OVERHEADS) == pytest.approx(10 + 2 * 41)
    assert estimate_plan(made, costs, OVERHEADS, workers=2) == pytest.approx(10 + 13 + 13 + 28)
    assert estimate_plan(made, costs, OVERHEADS, workers=4) == pytest.approx(10 + 28)


@pytest.mark.slow
def test_every_part_of_a_trial_is_measured() -> None:
    made = plan()
    overheads = measure_overheads(made, measure_costs(made))
    assert overheads.worker > 0 and overheads.validation > 0 and overheads.scoring > 0
    assert overheads.begin >= 0 and overheads.step >= 0
