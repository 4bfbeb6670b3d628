"""The pairs of columns, as hand-written lists."""

from __future__ import annotations

from clockhands.inspection.estimators.column_pairs import list_pairings


def test_neighbours_and_halves() -> None:
    assert list_pairings(6) == ([(0, 1), (2, 3), (4, 5)], [(0, 3), (1, 4), (2, 5)])


def test_the_last_of_an_odd_number_of_columns_has_no_partner() -> None:
    assert list_pairings(5) == ([(0, 1), (2, 3)], [(0, 2), (1, 3)])
