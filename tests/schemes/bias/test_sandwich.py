"""Sandwich against attention-gym."""

from __future__ import annotations

import pytest
import torch
from attn_gym.mods import generate_sandwich_bias

from clockhands import positions
from clockhands.errors import ConfigError
from clockhands.schemes import AttentionInputs, Sandwich


@pytest.mark.parametrize(("heads", "size"), [(4, 128), (6, 16)])
def test_bias_is_attention_gyms(heads: int, size: int) -> None:
    length = 50
    mod = generate_sandwich_bias(heads, length, d_bar=size)
    h, i, j = torch.meshgrid(torch.arange(heads), torch.arange(length), torch.arange(length), indexing="ij")
    theirs = mod(torch.zeros(()), torch.zeros((), dtype=torch.long), h, i, j)
    q, pos = torch.zeros(1, heads, length, 8), positions.count_up(1, length)
    torch.testing.assert_close(
        Sandwich(heads, size=size).bias(AttentionInputs(q, q, pos, pos))[0], theirs, atol=2e-4, rtol=1e-5
    )


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ConfigError, match="size is 7"):
        Sandwich(4, size=7)
