"""Errors of a step: those of a clock, of a straight line by hand, and of noise."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.estimators.step_errors import (
    LINEAR,
    ROTATION,
    STANDING_STILL,
    StepErrors,
    measure_random_split,
    measure_step,
)

from ..measures.tables import mixed


def _errors(rows_ND: torch.Tensor, step: int = 1) -> StepErrors:
    rows = rows_ND.double()
    return measure_step(rows - rows.mean(0), step)


@pytest.mark.parametrize("step", [1, 4, 16])
def test_a_clock_steps_by_one_rotation(step: int) -> None:
    errors = _errors(mixed(256, 64, [5.0, 9.0, 31.0], noise=0.0), step)
    assert errors.means[LINEAR] < 1e-6 and errors.means[ROTATION] < 0.02
    assert errors.estimate_gain(errors.reported_map)[0] > 0.05


def test_standing_still_is_what_it_is_called() -> None:
    """Against the same number computed by hand: both ends of a step of a table in one dimension."""
    rows = torch.linspace(-1, 1, 65, dtype=torch.float64)[:, None] ** 3
    errors = _errors(rows)
    centred = rows - rows.mean()
    still = (centred[1:] - centred[:-1]).square().sum() / 64
    assert errors.means[STANDING_STILL] == pytest.approx(float(still / centred.square().mean()), rel=0.15)


def test_noise_that_only_falls_back_to_its_mean_has_no_gain() -> None:
    rows = torch.zeros(200, 64)
    drawn = torch.randn(200, 64, generator=torch.Generator().manual_seed(0))
    for t in range(1, 200):
        rows[t] = 0.6 * rows[t - 1] + drawn[t]
    assert _errors(rows).estimate_gain(LINEAR)[1] < 0, "one multiple of the row does as well as a map"


def test_a_rotation_without_noise_has_no_error_on_rows_held_out_at_random() -> None:
    """A matrix and a rotation find it; of rows that are noise neither predicts the next (a wrong guess has 2)."""
    angle = 0.4 * torch.arange(80.0)
    exact = measure_random_split(torch.stack([angle.cos(), angle.sin()], 1), 1)
    noise = measure_random_split(torch.randn(400, 2, generator=torch.Generator().manual_seed(0)), 1)
    assert max(exact) < 1e-6
    assert noise[0] == pytest.approx(1, abs=0.15) and 1.5 < noise[1] < 2.5
