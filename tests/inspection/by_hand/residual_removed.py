"""The states behind one layer of the paper's encoder if nothing is added to its output: both residuals are left out."""

import math
from typing import Any

import torch
from torch.nn import functional as F


def compute(x_BTD: torch.Tensor, block: Any, heads: int) -> torch.Tensor:
    cut = lambda y: y.unflatten(-1, (heads, -1)).transpose(1, 2)  # noqa: E731
    q, k, v = map(cut, block.attention.qkv(x_BTD).chunk(3, dim=-1))
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    attended = block.attention.out((weights @ v).transpose(1, 2).flatten(2))
    x_BTD = block.attention_residual.norm(attended)  # and not x + attended
    inside = F.relu(block.feed_forward.up(x_BTD))
    return block.feed_forward_residual.norm(block.feed_forward.down(inside))  # nor x + that
