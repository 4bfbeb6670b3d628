"""Columns of numbers become figures of plain values, and what is None is left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clockhands.findings import draw_columns, make_heatmap


@pytest.mark.parametrize("kind", ["line", "bars", "stack"])
def test_columns_are_drawn_by_their_labels_with_what_they_are_compared_with(kind: str) -> None:
    figure = draw_columns(
        kind,  # type: ignore[arg-type]
        range(2),
        {"ours": torch.tensor([0.5, 1.0]), "other": np.array([2.0, 3.0]), "missing": None},
        title="Which is larger",
        main="ours",
        reference=("other",),
        intervals={"ours": ([0.4, 0.9], [0.6, 1.1])},
        points={"untrained": [0.0, 0.1], "not built": None},
        levels={"chance": 0.25},
        xlabel="layer",
    )
    (panel,) = figure.panels
    assert (figure.title, panel.xlabel) == ("Which is larger", "layer")
    drawn = {mark.label: (mark.kind, mark.x, mark.y, mark.emphasis) for mark in panel.marks}
    assert drawn == {
        "ours": (kind, (0, 1), (0.5, 1.0), "main"),
        "other": (kind, (0, 1), (2.0, 3.0), "reference"),
        "untrained": ("points", (0, 1), (0.0, 0.1), "reference"),
        "chance": ("hline", (), (0.25,), "reference"),
    }
    assert (panel.marks[0].low, panel.marks[0].high) == ((0.4, 0.9), (0.6, 1.1))


def test_a_heatmap_keeps_its_empty_cells() -> None:
    assert make_heatmap([[1.0, None], torch.tensor([2.0, 3.0])]).z == ((1.0, None), (2.0, 3.0))
