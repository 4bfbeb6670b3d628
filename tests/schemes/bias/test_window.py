"""A window is the sliding window of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import MistralConfig
from transformers.masking_utils import sliding_window_overlay

from clockhands import positions
from clockhands.schemes import Window
from tests.schemes.peers import compute_bias


@pytest.mark.parametrize("left", [0, 3, 20])
def test_under_a_causal_mask_it_is_mistrals_sliding_window(left: int) -> None:
    scheme = Window(2, left=left)
    ours = compute_bias(scheme, positions.count_up(1, 9), heads=2)
    sees = sliding_window_overlay(MistralConfig(**scheme.to_hf_config()).sliding_window)
    theirs = torch.tensor([[sees(0, 0, i, j) for j in range(9)] for i in range(9)])
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    assert torch.equal((ours[0, 0] == 0)[past], theirs[past])
    assert torch.equal(ours[0, 0], ours[0, 1])
