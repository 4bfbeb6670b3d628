"""The picture of clock hands: a few of them, for two turns at most."""

from __future__ import annotations

import math

import pytest
import torch

from clockhands.inspection.measures.hands_figure import MOST_DOTS, MOST_ORBITS, draw_hands


def _orbit(period: float, rows: int = 300) -> tuple[float, torch.Tensor]:
    angle = 2 * math.pi * torch.arange(rows) / period
    return period, torch.stack([angle.cos(), angle.sin()], dim=1)


@pytest.mark.parametrize(("count", "drawn"), [(1, 1), (3, 3), (4, 4), (5, 3), (9, 3)])
def test_hands_are_drawn_from_the_fastest_on(count: int, drawn: int) -> None:
    figure = draw_hands([_orbit(5.0 * (count - k)) for k in range(count)])
    assert figure is not None and len(figure.panels) == drawn <= MOST_ORBITS
    periods = [float(panel.title.split()[0]) for panel in figure.panels]
    assert periods == sorted(periods) and periods[0] == 5.0


@pytest.mark.parametrize(("period", "dots"), [(5.0, 11), (30.0, 61), (200.0, 60)])
def test_two_turns_are_drawn_with_few_dots(period: float, dots: int) -> None:
    figure = draw_hands([_orbit(period)])
    assert figure is not None
    line, points = figure.panels[0].marks
    assert len(points.x) == len(points.names) == dots <= MOST_DOTS
    assert points.names[0] == "position 1" and line.x == points.x
    edge = figure.panels[0].xlim
    assert edge is not None and edge[1] > 1 and edge == figure.panels[0].ylim, "the circle stays within its panel"


def test_no_hand_has_no_picture() -> None:
    assert draw_hands([]) is None
