"""How tokens stand at their positions, so that a bias by distance is read off one curve."""

from __future__ import annotations

import pytest
import torch

from clockhands.attention.line import find_line


@pytest.mark.parametrize(
    ("queries", "keys", "expected"),
    [
        ([[0, 1, 2]], [[0, 1, 2]], (1, 3)),
        ([[4, 5]], [[2, 3, 4, 5]], (1, 4)),
        ([[4, 5], [5, 6]], [[2, 3, 4, 5], [2, 3, 4, 5]], None),  # the second row's queries stand elsewhere
        ([[4, 5], [14, 15]], [[2, 3, 4, 5], [12, 13, 14, 15]], (1, 4)),  # both rows alike, ten apart
        ([[4, 5], [4, 5]], [[2, 3, 4, 5], [1, 2, 3, 4]], None),
        ([[0, 1, 8, 9]], [[0, 1, 8, 9]], (2, 2)),
        ([[0, 2, 3]], [[0, 2, 3]], None),
    ],
)
def test_rows_that_stand_alike_are_one_line(
    queries: list[list[int]], keys: list[list[int]], expected: tuple[int, int] | None
) -> None:
    line = find_line(torch.tensor(queries), torch.tensor(keys))
    assert (None if line is None else line.count_runs(len(keys[0]))) == expected


def test_one_key_stands_in_a_line_too() -> None:
    line = find_line(torch.tensor([[7]]), torch.tensor([[7]]))
    assert line is not None and line.count_runs(1) == (1, 1)
