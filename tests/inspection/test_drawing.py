"""Numbers in verdicts."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.drawing import draw_head_grid, format_percent, format_percent_range


def test_a_cell_of_a_grid_of_heads_has_the_name_by_which_all_figures_mark_it() -> None:
    """Layers from 1, heads from 0, row by row: the script of a page finds the same head elsewhere by this name."""
    (mark,) = draw_head_grid(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), "Share").panels[0].marks
    assert dict(zip(mark.names, [cell for row in mark.z for cell in row], strict=True)) == pytest.approx(
        {"layer 1 head 0": 0.1, "layer 1 head 1": 0.2, "layer 1 head 2": 0.3}
        | {"layer 2 head 0": 0.4, "layer 2 head 1": 0.5, "layer 2 head 2": 0.6}
    )


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.9, 0.93, "90 % to 93 %"),
        (0.9312, 0.9344, "93.1 % to 93.4 %"),
        (0.93121, 0.93124, "93.121 % to 93.124 %"),
        (0.05, 0.2, "5.0 % to 20 %"),
        (0.0051, 0.0053, "0.51 % to 0.53 %"),
        (0.00001, 0.0004, "0.00 % to 0.04 %"),
        (0.5, 0.5, "50 % to 50 %"),
    ],
)
def test_two_ends_that_differ_are_written_apart(low: float, high: float, shown: str) -> None:
    assert format_percent_range(low, high) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0924, "9.2 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.12, "12 %"),
        (0.0004, "0.0 %"),
        (-0.0004, "0.0 %"),
        (-0.02, "−2.0 %"),
    ],
)
def test_a_percentage_has_one_decimal_below_ten(share: float, shown: str) -> None:
    assert format_percent(share) == shown
