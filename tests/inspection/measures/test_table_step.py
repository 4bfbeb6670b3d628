"""A step along the table is one rotation of a clock, and not of a random walk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clockhands.inspection.estimators.step_errors import LINEAR, ROTATION, measure_step
from clockhands.inspection.measures.table_step import _describe

from ..planted import table_answer
from .tables import learned, mixed, sinusoid, walk


def test_a_sinusoid_steps_by_the_same_rotation_everywhere() -> None:
    finding = table_answer("table.shift", learned(sinusoid(128, 64)))
    assert finding.verdict.startswith(
        "A step by one is the same rotation everywhere: on stretches of rows that it was not fitted on, the best rota"
    )
    assert finding.light == "good"
    still = finding.reference("standing still")
    assert still is not None and finding.value < 0.2 * still.value  # type: ignore[operator]


@pytest.mark.parametrize("width", [64, 384])
@pytest.mark.parametrize("seed", range(3))
def test_a_random_walk_has_no_rotation_better_than_standing_still(seed: int, width: int) -> None:
    """It is smooth: any map that stays near where it was predicts it well, and none better than standing still."""
    finding = table_answer("table.shift", learned(walk(128, width, seed)))
    assert finding.verdict.startswith(
        "No one rotation predicts the next row better than both standing still and a multiple of the row"
    )
    assert finding.light == "info"
    assert finding.value < 0.2, "small although nothing turns: a reference is needed"  # type: ignore[operator]


def test_a_map_that_misses_much_is_not_the_same_everywhere() -> None:
    """A noisy clock: a rotation beats standing still, and still misses much. It was the same everywhere."""
    finding = table_answer("table.shift", learned(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.1)))
    assert finding.value > 0.2 and finding.light == "info"  # type: ignore[operator]
    assert finding.verdict.startswith(
        "One rotation predicts the next row better than standing still and than a multiple of "
    )
    assert "So is a step by" not in finding.verdict


def test_longer_steps_are_said_to_be_the_same_where_each_is_the_same_kind_of_map() -> None:
    """It said so of a rotation where a longer step is another linear map, and of every step up to 16."""
    rows = sinusoid(128, 64)[1:].double()
    turns = measure_step(rows - rows.mean(0), 1)
    assert turns.is_same_map and turns.reported_map == ROTATION
    shrinks = replace(turns, step=2, by_stretch_s4=turns.by_stretch_s4[:, [0, 2, 2, 3]])
    assert shrinks.is_same_map and shrinks.reported_map == LINEAR
    assert _describe([turns, replace(turns, step=2)]).endswith(" So is a step by 2.")
    assert "So is" not in _describe([turns, shrinks]) and "So is" not in _describe([turns])


def test_one_straight_line_leaves_it_undecided() -> None:
    finding = table_answer("table.shift", learned(torch.linspace(-1, 1, 64)[:, None] * torch.ones(64)))
    assert finding.verdict.startswith(
        "It is undecided whether one rotation predicts the next row better than both standing still and a multiple of "
    )
