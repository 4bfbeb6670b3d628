"""Stick-breaking against the reference of flash-linear-attention."""

from __future__ import annotations

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import StickBreaking
from tests.schemes.peers import agree, copied, flash_linear_attention, leaf

HEADS, WIDTH, LENGTH = 3, 8, 21


@pytest.mark.parametrize("current", [False, True], ids=["without itself", "with itself"])
def test_attention_and_its_gradients_are_those_of_flash_linear_attention(current: bool) -> None:
    naive = flash_linear_attention("stickbreaking_attn").naive_stickbreaking_attn
    ours, pos = StickBreaking(attend_current=current), positions.count_up(2, LENGTH)
    q, k, v = (leaf(2, HEADS, LENGTH, WIDTH, seed=seed) for seed in range(3))
    q2, k2, v2 = (copied(t) for t in (q, k, v))

    def theirs() -> torch.Tensor:
        out, _ = naive(*(t.transpose(1, 2) for t in (q2, k2, v2)), attend_current=current)
        return out.transpose(1, 2)

    agree(lambda: attend(ours, q, k, v, pos, pos, causal=True), theirs, [(q, q2), (k, k2), (v, v2)], atol=1e-5)
