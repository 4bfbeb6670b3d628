"""The input among the arguments of an attention module."""

from __future__ import annotations

import pytest
import torch

from clockhands.errors import CheckpointError
from clockhands.inspection.reading.layer import find_input, get_input


def test_the_input_is_the_one_by_name_before_the_first_tensor() -> None:
    first, named = torch.zeros(1), torch.ones(1)
    assert get_input((None, first), {}) is first
    assert get_input((first,), {"mask": None, "hidden_states": named}) is named


def test_a_call_without_a_tensor_is_refused() -> None:
    assert find_input((1,), {"scale": 2.0}) is None
    with pytest.raises(CheckpointError, match="1 arguments, and by name scale"):
        get_input((1,), {"scale": 2.0})
