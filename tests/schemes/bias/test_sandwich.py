"""Sandwich against attention-gym."""

from __future__ import annotations

import pytest
import torch
from attn_gym.mods import generate_sandwich_bias

from clockhands import positions
from clockhands.schemes import Sandwich
from tests.schemes.peers import compute_bias


@pytest.mark.parametrize(("heads", "size"), [(4, 128), (6, 16)])
def test_bias_is_attention_gyms(heads: int, size: int) -> None:
    length = 50
    mod = generate_sandwich_bias(heads, length, d_bar=size)
    h, i, j = torch.meshgrid(torch.arange(heads), torch.arange(length), torch.arange(length), indexing="ij")
    theirs = mod(torch.zeros(()), torch.zeros((), dtype=torch.long), h, i, j)
    ours = compute_bias(Sandwich(heads, size=size), positions.count_up(1, length), heads=heads)[0]
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-5)
