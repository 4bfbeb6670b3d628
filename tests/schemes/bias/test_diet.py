"""DIET's table of distances ends where it says, and nothing is read beyond it."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import PositionError
from clockhands.schemes import DIET
from tests.schemes.peers import compute_bias


def test_a_distance_outside_the_table_is_refused() -> None:
    scheme = DIET(2, form="relative", max_length=3)
    assert compute_bias(scheme, torch.tensor([[1_000, 1_002]]), heads=2).shape == (1, 2, 2, 2)
    with pytest.raises(PositionError, match=r"distance 3 is outside the table of diet, which reaches 2; shorten"):
        compute_bias(scheme, torch.tensor([[0, 3]]), heads=2)
