"""Tensors in figures."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.drawing import draw_head_grid


def test_a_cell_of_a_grid_of_heads_has_the_name_by_which_all_figures_mark_it() -> None:
    """Layers and heads from 1, row by row: the script of a page finds the same head elsewhere by this name."""
    (mark,) = draw_head_grid(torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), "Share").panels[0].marks
    assert dict(zip(mark.names, [cell for row in mark.z for cell in row], strict=True)) == pytest.approx(
        {"layer 1 head 1": 0.1, "layer 1 head 2": 0.2, "layer 1 head 3": 0.3}
        | {"layer 2 head 1": 0.4, "layer 2 head 2": 0.5, "layer 2 head 3": 0.6}
    )
