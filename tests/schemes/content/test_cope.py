"""CoPE against x-transformers."""

from __future__ import annotations

import pytest
import torch
from x_transformers.x_transformers import CoPE as Peer

from clockhands import positions
from clockhands.schemes import AttentionInputs, CoPE
from tests.schemes.peers import agree, copied, leaf

HEADS, LENGTH, WIDTH = 3, 11, 8


@pytest.mark.parametrize("largest", [4, 64])
def test_logits_and_their_gradients_are_those_of_x_transformers(largest: int) -> None:
    ours, theirs = CoPE(WIDTH, max_position=largest), Peer(WIDTH, HEADS, largest)
    with torch.no_grad():
        theirs.pos_emb.copy_(ours.embedding_PK.normal_())
    q, logits = leaf(2, HEADS, LENGTH, WIDTH), leaf(2, HEADS, LENGTH, LENGTH, seed=1)
    q2, logits2 = copied(q), copied(logits)
    visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    pos = positions.count_up(2, LENGTH)

    def mine() -> torch.Tensor:
        return ours.logits(logits, visible[None, None], AttentionInputs(q, q, pos, pos)) - logits

    def peer() -> torch.Tensor:
        masked = logits2.masked_fill(~visible, -torch.finfo(torch.float32).max)
        return theirs(q2, masked)

    pairs = [(q, q2), (logits, logits2), (ours.embedding_PK, theirs.pos_emb)]
    agree(mine, peer, pairs, atol=1e-5, visible=visible)
