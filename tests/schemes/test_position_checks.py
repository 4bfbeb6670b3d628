"""Positions that a table does not hold are refused, and the last one that it holds is not."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import PositionError
from clockhands.schemes.position_checks import check_integer, check_length


@pytest.mark.parametrize("positions", [[0], [7], [0, 7], []])
def test_a_table_takes_every_position_that_it_holds(positions: list[int]) -> None:
    check_length(torch.tensor(positions), 8, "learned")


@pytest.mark.parametrize(("positions", "wrong"), [([0, 8], 8), ([-1, 3], -1), ([-2, 9], -2)])
def test_a_position_outside_of_the_table_is_named(positions: list[int], wrong: int) -> None:
    message = rf"^position {wrong} is outside the 8 positions of learned; shorten the text, raise rows, or choose"
    with pytest.raises(PositionError, match=message):
        check_length(torch.tensor(positions), 8, "learned", option="rows")


def test_a_table_has_no_row_between_two_others() -> None:
    check_integer(torch.tensor([0, 1]), "t5")
    with pytest.raises(PositionError, match=r"^t5 looks positions up in a table, and these are real numbers"):
        check_integer(torch.tensor([0.0, 1.0]), "t5")
