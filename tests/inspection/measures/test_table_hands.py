"""Clock hands are reported where they were planted, in tables that a model really adds, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.findings import Finding
from clockhands.inspection.estimators.hands import SpectralLine, TableLines
from clockhands.inspection.estimators.matrix_statistics import ExactHands
from clockhands.inspection.measures.table_hands import (
    COLUMNS,
    MOST_DOTS,
    MOST_ORBITS,
    describe_exact_hands,
    describe_lines,
    draw_hands,
    make_row,
)

from ..planted import table_answer
from .tables import learned, mixed, sinusoid, walk


def found(rows_ND: torch.Tensor) -> Finding:
    return table_answer("table.hands", learned(rows_ND))


def test_a_learned_table_of_exact_sinusoids_has_its_own_periods() -> None:
    finding = found(sinusoid(128, 64))
    periods = [row[0] for row in finding.table.rows]
    assert periods == pytest.approx([2 * math.pi * 10000 ** (k / 32) for k in range(32)], rel=1e-3)
    assert finding.verdict.startswith("All 32 pairs of columns turn at exactly constant speed, once in 6.3 to ")
    assert "of them make fewer than two turns within the 127 rows that were read" in finding.verdict


def test_a_hand_that_is_zero_is_counted_and_hides_no_other() -> None:
    rows = sinusoid(128, 64)
    rows[:, 4:6] = 0
    finding = found(rows)
    assert finding.value == 31
    assert "One pair is zero." in finding.verdict


def test_noise_makes_it_an_estimate_that_stops_where_the_table_does() -> None:
    finding = found(sinusoid(128, 64) + 0.1 * torch.randn(128, 64, generator=torch.Generator().manual_seed(0)))
    periods = [row[0] for row in finding.table.rows]
    assert periods == pytest.approx([2 * math.pi * 10000 ** (k / 32) for k in range(9)], rel=0.01)
    assert "9 hands turn at constant speed, once in 6.3, 8.4, 11.2" in finding.verdict
    assert "moves more slowly than one turn in 64 tokens; 127 rows are too few to tell" in finding.verdict


def test_hands_across_columns_are_reported_with_what_they_beat() -> None:
    finding = found(mixed(128, 64, [5.0, 9.0, 31.0]))
    assert [row[0] for row in finding.table.rows] == pytest.approx([5, 9, 31], rel=0.01)
    assert all(low < period < high for period, low, high, *_ in finding.table.rows)
    assert "3 hands turn at constant speed, once in 5.0, 9.0 and 31.0 tokens" in finding.verdict
    assert "lines in 120 tables of smooth noise: at most 0." in finding.verdict
    assert finding.light == "good"
    assert finding.reference("smooth surrogates") is not None
    assert finding.figure is not None and len(finding.figure.panels) == 3


def _line(**changes: Any) -> SpectralLine:
    return replace(SpectralLine(0.5, np.zeros((2, 4)), 0.3, 0.99, 1.0, 0.01), **changes)


def test_a_period_has_no_upper_end_where_its_frequency_may_be_zero() -> None:
    known = dict(zip(COLUMNS, make_row(_line()), strict=True))
    assert known["low"] == pytest.approx(2 * math.pi / 0.5196) and known["high"] == pytest.approx(2 * math.pi / 0.4804)
    unsure = dict(zip(COLUMNS, make_row(_line(error=0.3)), strict=True))
    assert unsure["low"] == pytest.approx(2 * math.pi / 1.088) and unsure["high"] is None


def test_the_range_of_a_speed_that_varies_is_no_interval() -> None:
    row = dict(zip(COLUMNS, make_row(_line(parts=(_line(frequency=0.4), _line(frequency=0.6)))), strict=True))
    assert row["low"] is None and row["high"] is None
    assert row["fastest period"] == pytest.approx(2 * math.pi / 0.6)
    assert row["slowest period"] == pytest.approx(2 * math.pi / 0.4)


def test_the_picture_of_a_hand_is_a_circle() -> None:
    figure = found(mixed(128, 64, [5.0, 31.0], noise=0.02)).figure
    assert figure is not None
    for panel in figure.panels:
        dots = panel.marks[1]
        radius = torch.tensor(dots.x) ** 2 + torch.tensor(dots.y) ** 2
        assert float(radius.sqrt().std() / radius.sqrt().mean()) < 0.15


@pytest.mark.parametrize(("seed", "width"), [(0, 64), (1, 64), (2, 384)])
def test_a_random_walk_has_no_hand(seed: int, width: int) -> None:
    finding = found(walk(128, width, seed))
    assert finding.value == 0
    assert finding.verdict.startswith("No hand of three turns or more was found in the table (best agr")
    assert finding.light == "info"


def test_another_first_row_changes_nothing() -> None:
    rows = mixed(128, 64, [5.0, 9.0, 31.0])
    other = rows.clone()
    other[0] += 50
    assert found(other).verdict == found(rows).verdict


def test_what_swings_is_no_hand() -> None:
    wave = torch.cos(2 * math.pi * torch.arange(128) / 12)
    generator = torch.Generator().manual_seed(0)
    rows = wave[:, None] * torch.randn(64, generator=generator) + 0.05 * torch.randn(128, 64, generator=generator)
    verdict = found(rows).verdict
    assert verdict.startswith("No hand")
    assert "One spectral line swings back and forth without turning, once in 12.0 tokens." in verdict


def test_a_trend_is_reported_as_too_slow() -> None:
    trend = torch.linspace(-1, 1, 128)[:, None] * torch.ones(64)
    rows = trend + 0.05 * torch.randn(128, 64, generator=torch.Generator().manual_seed(0))
    assert "of the variance moves more slowly than one turn in 64 tokens" in found(rows).verdict
    noise = torch.randn(128, 64, generator=torch.Generator().manual_seed(0))
    assert "more slowly" not in found(noise).verdict


def _turn(angle_N: torch.Tensor, size_N: torch.Tensor | float = 1.0) -> torch.Tensor:
    """One hand across 64 columns, at these angles, with a little noise."""
    generator = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(64, 64, generator=generator)).Q[:2]
    circle = torch.stack([size_N * angle_N.cos(), size_N * angle_N.sin()], dim=1)
    return circle @ axes + 0.02 * torch.randn(len(angle_N), 64, generator=generator)


@pytest.mark.parametrize("varies", [True, False])
def test_a_speed_that_varies_is_reported_where_it_does(varies: bool) -> None:
    """One hand of period 8, whose speed rises and falls once along the table, or does not."""
    t = torch.arange(257.0)
    finding = found(_turn(2 * math.pi * t / 8 + (1.5 * torch.sin(2 * math.pi * t / 256) if varies else 0)))
    assert finding.value == 1
    assert ("Its speed varies: it consists of several lines, of one turn in 7." in finding.verdict) == varies
    assert "size varies" not in finding.verdict
    assert ("One hand turns at constant speed, once in 8.0 tokens" in finding.verdict) == (not varies)


def test_a_size_that_varies_is_no_speed_that_varies() -> None:
    """One hand that turns once in 9 tokens and grows and shrinks: "its speed varies" was told of it."""
    t = torch.arange(257.0)
    verdict = found(_turn(2 * math.pi * t / 9, 1 + 0.5 * torch.cos(2 * math.pi * t / 100))).verdict
    assert verdict.startswith("One hand turns, once in 9.0 tokens")
    assert verdict.endswith("Its size varies: it consists of several lines, of one turn in 8.3 to 9.9 tokens.")


def test_each_hand_that_varies_is_told_by_what_of_it_does() -> None:
    """exp(iωt) (1 + i sin δt) changes its speed, exp(iωt) (1 + 0.4 cos δt) its size, and with one neighbour both do."""
    hands = [
        _add_neighbours(_line(frequency=w), *a) for w, a in ((2.0, (-0.5, 0.5)), (1.0, (0.2, 0.2)), (0.5, (0.2, 0.0)))
    ]
    verdict = describe_lines(TableLines(rotating=(*hands, _line(frequency=0.2))), 400, 0.0)
    assert "4 hands turn, once in 3.1, 6.3, 12.6 and 31.4 tokens" in verdict
    assert "The speed of 1 of them varies: it consists of several lines, of one turn in 2.9 to 3.5 tokens." in verdict
    assert "The size of 1 of them varies: it consists of several lines, of one turn in 5.2 to 7.9 tokens." in verdict
    assert "The speed or size of 1 of them varies: it consists of" in verdict


def _add_neighbours(line: SpectralLine, below: float, above: float) -> SpectralLine:
    """The hand with lines of these amplitudes, of its own 1, at 0.2 radians a row less and more than its own speed."""
    circle = np.array([[1.0, 0.0], [0.0, 1.0]])
    parts = [(line.frequency - 0.2, below), (line.frequency, 1.0), (line.frequency + 0.2, above)]
    made = tuple(replace(line, frequency=w, plane_2D=a * circle, share=abs(a) / 3) for w, a in parts if a)
    return replace(line, plane_2D=circle, parts=made)


@pytest.mark.parametrize("steep", [True, False])
def test_beside_a_steep_trend_a_hand_must_turn_three_times(steep: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(128, 64, generator=generator)
    rows += (10 if steep else 0) * torch.linspace(-1, 1, 128)[:, None] * torch.randn(64, generator=generator)
    turns = "three" if steep else "two"
    assert found(rows).verdict.startswith(f"No hand of {turns} turns or more was found in the table")


@pytest.mark.parametrize("slow", [(), (200.0, 300.0, 450.0)])
def test_how_many_slow_hands_were_not_told_apart_is_said(slow: tuple[float, ...]) -> None:
    """Mixed hands of one to three turns: too close to each other to be told apart, and more than noise."""
    verdict = found(mixed(512, 64, [5.0, 9.0, 100.0, *slow], noise=0.05)).verdict
    assert ("and the 511 rows there is movement enough for at least" in verdict) == bool(slow)
    assert verdict.endswith("not told apart.") == bool(slow)


@pytest.mark.parametrize("resting", [0, 1])
def test_what_is_the_same_in_every_row_is_at_rest(resting: int) -> None:
    rows = sinusoid(128, 16)
    if resting:
        rows[:, 4:6] = torch.tensor([0.3, -0.2])
    exact = found(rows)
    assert exact.value == 8 - resting and exact.verdict.startswith("All ")
    assert ("One pair is at rest: the same in every row." in exact.verdict) == bool(resting)
    noise = 0.1 * torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    noise[:, 4:6] *= 0 if resting else 1
    assert ("2 of 16 columns are at rest: the same in every row." in found(rows + noise).verdict) == bool(resting)


@pytest.mark.parametrize(
    ("periods", "zero_pairs", "num_rows", "said"),
    [
        ([2.0, 10.0], 1, 50, "All 2 pairs of columns that are not zero turn {}2.0 to 10.0 tokens. One pair is zero."),
        ([7.5], 2, 50, "The one pair of columns that is not zero turns {}7.5 tokens. 2 pairs are zero."),
        ([7.5], 0, 50, "The one pair of columns turns {}7.5 tokens."),
        ([7.5], 0, 10, "The one pair of columns turns {}7.5 tokens. It makes fewer than {} 10 rows that were read."),
        (
            [2.0, 10.0, 1000.0], 0, 500,
            "All 3 pairs of columns turn {}2.0 to 1,000 tokens. 1 of them makes fewer than {} 500 rows that were read.",
        ),
        # A slowest period without decimals once stood below the fastest: "6.3 to 6".
        ([6.3, 6.4], 0, 500, "All 2 pairs of columns turn {}6.3 to 6.4 tokens."),
    ],
)  # fmt: skip
def test_how_many_exact_hands_turn_and_between_which_periods(
    periods: list[float], zero_pairs: int, num_rows: int, said: str
) -> None:
    said = said.format("at exactly constant speed, once in ", "two turns within the")
    assert describe_exact_hands(ExactHands(tuple(periods), zero_pairs=zero_pairs), num_rows) == said
    slow = describe_exact_hands(ExactHands((2.0, 300.0, 1000.0)), 500)
    assert "2 of them make fewer" in slow


def _orbit(period: float, rows: int = 300) -> tuple[float, torch.Tensor]:
    angle = 2 * math.pi * torch.arange(rows) / period
    return period, torch.stack([angle.cos(), angle.sin()], dim=1)


@pytest.mark.parametrize(("count", "drawn"), [(1, 1), (3, 3), (4, 4), (5, 3), (9, 3)])
def test_hands_are_drawn_from_the_fastest_on(count: int, drawn: int) -> None:
    figure = draw_hands([_orbit(5.0 * (count - k)) for k in range(count)])
    assert figure is not None and len(figure.panels) == drawn <= MOST_ORBITS
    assert draw_hands([]) is None
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
