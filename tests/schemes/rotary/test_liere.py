"""LieRE: only differences matter where axes commute, and rotations that take much room say so."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from clockhands import positions
from clockhands.errors import ClockhandsWarning, ConfigError
from clockhands.schemes import LieRE
from clockhands.schemes.rotary import liere


@pytest.mark.parametrize(("form", "commutes"), [("free", False), ("partition", True), ("dependent", True)])
def test_rotations_of_the_axes_commute_exactly_where_they_are_tied(
    form: Literal["free", "partition", "dependent"], commutes: bool
) -> None:
    torch.manual_seed(0)
    scheme = LieRE(2, 8, block=4, form=form, std=0.5)
    step_right, step_down, both = scheme.compute_rotations(torch.tensor([[[0, 1], [1, 0], [1, 1]]])).unbind(2)
    assert torch.allclose(step_right @ step_down, both) == commutes
    assert torch.allclose(both @ both.mT, torch.eye(4).double()), "a rotation, whatever the axes do"
    assert scheme.declares.translation_invariant == commutes


def test_no_axis_is_told_as_no_axis() -> None:
    with pytest.raises(ConfigError, match=r"LieRE has 1 fault:\n  - axes is 0, but must be at least 1"):
        LieRE(2, 8, axes=0)


def test_rotations_that_take_much_room_say_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, grid = LieRE(2, 8), positions.make_grid(1, 2, 2)
    monkeypatch.setattr(liere, "LARGE", 4 * 2 * 8 * 8 - 1)
    with pytest.warns(ClockhandsWarning, match=r"liere makes rotations of 512 numbers in one call, 0.0 GiB; a smaller"):
        scheme.rotate(torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8), grid, grid)
