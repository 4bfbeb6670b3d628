"""The bars of interventions are means with their intervals."""

from __future__ import annotations

import pytest
import torch

from clockhands.inspection.measures.intervention_figure import bootstrap_change, draw_changes


def test_bars_are_means_with_intervals_and_1_has_its_name() -> None:
    generator = torch.Generator().manual_seed(0)
    large, small = 0.5 + 0.1 * torch.randn(24, generator=generator), torch.zeros(24)
    figure = draw_changes([("tokens permuted", large), ("shifted by 1", small)], "another text", "the mean")
    bars, line = figure.panels[0].marks
    assert bars.x == ("tokens permuted", "shifted by 1")
    assert bars.y == pytest.approx((float(large.mean()), 0.0))
    assert (bars.low[0], bars.high[0]) == bootstrap_change(large) and (bars.low[1], bars.high[1]) == (0.0, 0.0)
    assert bars.low[0] < float(large.mean()) < bars.high[0]
    assert (line.y, line.label) == ((1.0,), "another text") and figure.panels[
        0
    ].ylabel == "share by which the mean changes"
