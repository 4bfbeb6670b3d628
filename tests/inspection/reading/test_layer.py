"""The input among the arguments of an attention module."""

from __future__ import annotations

import torch
from torch import nn

from clockhands.inspection.reading.attention_hooks import ComputedAttention
from clockhands.inspection.reading.layer import Layer, find_input


def test_the_input_is_the_one_by_name_before_the_first_tensor() -> None:
    first, named = torch.zeros(1), torch.ones(1)
    assert find_input((None, first), {}) is first
    assert find_input((first,), {"mask": None, "hidden_states": named}) is named
    assert find_input((1,), {"scale": 2.0}) is None


def test_what_is_added_is_zero_where_the_mask_forbids() -> None:
    """What transformers' attention function is given as a bias has values at masked keys too."""
    ones = torch.ones(1, 1, 2, 2)
    mask = torch.ones(1, 1, 2, 2, dtype=torch.bool).tril()
    computed = ComputedAttention(nn.Identity(), ones, ones, ones, ones, mask, scale=1.0, bias_BHST=3 * ones)
    layer = Layer(0, nn.Identity(), torch.ones(1, 2, 2), nn.Identity(), (ones,), {})
    assert layer.compute_bias(computed)[0, 0].tolist() == [[3.0, 0.0], [3.0, 3.0]]
