"""Pairs of columns that hold one line each are found as they stand, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clockhands.inspection.estimators.column_lines import (
    LEAST_SHARE,
    SpectralLine,
    _merge_equal_frequencies,
    take_column_lines,
)

ROWS = 128


def _pair(speed: float, flat: float = 1.0) -> np.ndarray:
    angle = speed * np.arange(ROWS)
    return np.stack([np.cos(angle), flat * np.sin(angle)], axis=1)


def _take(rows: np.ndarray) -> tuple[list[SpectralLine], np.ndarray]:
    rows = rows - rows.mean(0)
    return take_column_lines(rows, float((rows**2).mean(0).sum()))


@pytest.mark.parametrize("halves", [False, True])
def test_both_ways_to_pair_columns_are_tried(halves: bool) -> None:
    first, second = _pair(0.5), _pair(0.53)
    rows = np.concatenate([first, second], axis=1)
    rows = rows[:, [0, 2, 1, 3]] if halves else rows
    lines, rest = _take(rows)
    assert sorted(line.frequency for line in lines) == pytest.approx([0.5, 0.53], rel=1e-3)
    assert {line.columns for line in lines} == ({(0, 2), (1, 3)} if halves else {(0, 1), (2, 3)})
    assert all(line.roundness == pytest.approx(1, abs=0.05) for line in lines)
    assert float((rest**2).sum()) < 1e-2 * float((rows**2).sum())


@pytest.mark.parametrize("kind", ["flat", "two speeds", "one turn", "noise"])
def test_what_is_not_one_circle_is_left(kind: str) -> None:
    rows = {
        "flat": _pair(0.5, flat=0.5),
        "two speeds": np.stack([np.cos(0.5 * np.arange(ROWS)), np.sin(0.9 * np.arange(ROWS))], axis=1),
        "one turn": _pair(2 * np.pi / ROWS),
        "noise": np.random.default_rng(0).standard_normal((ROWS, 2)),
    }[kind]
    lines, rest = _take(rows)
    assert not lines
    assert rest == pytest.approx(rows - rows.mean(0))


def test_a_line_adds_its_rows() -> None:
    (line,), _ = _take(_pair(0.5))
    assert line.period == pytest.approx(4 * np.pi, rel=1e-3)
    assert line.compute_rows(ROWS) == pytest.approx(_pair(0.5), abs=0.02)
    parts = replace(line, parts=(line, line))
    assert parts.compute_rows(ROWS) == pytest.approx(2 * line.compute_rows(ROWS))


def test_two_pairs_of_columns_at_one_speed_are_one_line_in_all_four() -> None:
    """It was reported in the first two alone, and to agree as well as those."""
    first = SpectralLine(0.5, np.ones((2, 4)), 0.3, 0.99, 1.0, 0.01, columns=(0, 4))
    second = replace(first, columns=(1, 5), agreement=0.9, roundness=0.8)
    (line,) = _merge_equal_frequencies([first, second])
    assert line.columns == (0, 1, 4, 5) and (line.agreement, line.roundness) == (0.9, 0.8)
    assert line.share == pytest.approx(0.6) and line.plane_2D.tolist() == [[2.0] * 4] * 2
    assert len(_merge_equal_frequencies([first, replace(second, frequency=0.51)])) == 2


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_line_counts_by_its_share_whatever_the_unit_of_the_table_is(unit: float) -> None:
    """The second has a tenth of the least share; the first is all the rest."""
    faint = (0.1 * LEAST_SHARE) ** 0.5
    lines, _ = _take(unit * np.concatenate([_pair(0.5), faint * _pair(0.9)], axis=1))
    assert [line.columns for line in lines] == [(0, 1)]
    assert lines[0].frequency == pytest.approx(0.5, rel=1e-3) and lines[0].share == pytest.approx(1, abs=0.01)
