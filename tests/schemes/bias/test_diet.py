"""DIET's table of distances ends where it says, and nothing is read beyond it."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import PositionError
from clockhands.schemes import DIET, AttentionInputs


def test_a_distance_outside_the_table_is_refused() -> None:
    scheme, q = DIET(2, form="relative", max_length=3), torch.ones(1, 2, 2, 8)
    near, far = torch.tensor([[1_000, 1_002]]), torch.tensor([[0, 3]])
    assert scheme.bias(AttentionInputs(q, q, near, near)).shape == (1, 2, 2, 2)
    with pytest.raises(PositionError, match=r"distance 3 is outside the table of diet, which reaches 2; shorten"):
        scheme.bias(AttentionInputs(q, q, far, far))


def test_a_table_takes_no_positions_between_the_integers() -> None:
    q, pos = torch.ones(1, 2, 2, 8), torch.tensor([[0.0, 0.5]])
    with pytest.raises(PositionError, match="diet looks positions up in a table"):
        DIET(2).bias(AttentionInputs(q, q, pos, pos))
