"""Inkling's relative logits against transformers."""

from __future__ import annotations

import torch
from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

from clockhands import positions
from clockhands.schemes import Inkling
from tests.schemes.peers import agree, copied, leaf


def test_logits_and_their_gradients_are_those_of_transformers() -> None:
    heads, rank, extent, length, width = 3, 4, 6, 10, 12
    ours, theirs = Inkling(width, heads, rank=rank, extent=extent), InklingRelativeLogits(rank, extent)
    with torch.no_grad():
        theirs.proj.copy_(ours.basis_GR.normal_())
    x = leaf(2, length, width)
    y, mixture = copied(x), copied(ours.mixture_GD)
    q, k, pos = torch.zeros(2, heads, 4, 8), torch.zeros(2, heads, length, 8), positions.count_up(2, length)

    def mine() -> torch.Tensor:
        own = ours.locate(x, pos, None)
        return ours.bias(q, k, own[:, :, -4:], own)

    def peer() -> torch.Tensor:
        states = (y @ mixture.T).unflatten(-1, (heads, rank))
        return theirs(states[:, -4:], pos[0, -4:], pos[0])

    agree(mine, peer, [(x, y), (ours.mixture_GD, mixture), (ours.basis_GR, theirs.proj)], atol=1e-5)
