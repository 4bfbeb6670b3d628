"""PaTH against the reference of flash-linear-attention, which multiplies the reflections chunk by chunk."""

from __future__ import annotations

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import PaTH
from tests.schemes.peers import agree, copied, flash_linear_attention, leaf

HEADS, WIDTH, LENGTH = 3, 8, 21
D = HEADS * WIDTH


@pytest.mark.parametrize("forget", [False, True], ids=["PaTH", "PaTH-FoX"])
@pytest.mark.parametrize("chunk", [4, 64], ids=["many chunks", "one chunk"])
@pytest.mark.parametrize("scale", [WIDTH**-0.5, 1.0], ids=["usual", "unscaled"])
def test_attention_and_gradients_are_those_of_flash_linear_attention(scale: float, chunk: int, forget: bool) -> None:
    naive = flash_linear_attention("path_attn").naive_path_attn
    ours, pos = PaTH(D, HEADS, WIDTH, forget=forget), positions.count_up(2, LENGTH)
    q, k, v = (leaf(2, HEADS, LENGTH, WIDTH, seed=seed) for seed in range(3))
    x = leaf(2, LENGTH, D, seed=4)
    q2, k2, v2, x2 = (copied(t) for t in (q, k, v, x))

    def mine() -> torch.Tensor:
        at = ours.locate(x, pos, None)
        return attend(ours, q, k, v, at, at, causal=True, scale=scale)

    def theirs() -> torch.Tensor:
        at = ours.locate(x2, pos, None)
        beta, w = at[..., 1], at[..., 2 : 2 + WIDTH]
        assert beta.max() > 1, "a reflection, not only a shrinking, is among the steps"
        gates = torch.zeros_like(beta)
        if ours.gate is not None:
            # It multiplies the gates' sum by the scale too; the Forgetting Transformer adds it as it is.
            gates = torch.nn.functional.logsigmoid(ours.gate(x2)).transpose(1, 2) / scale
        given = (t.transpose(1, 2) for t in (q2, k2, v2, w, beta, gates))
        return naive(*given, scale=scale, chunk_size=chunk).transpose(1, 2)

    agree(mine, theirs, [(q, q2), (k, k2), (v, v2), (x, x2)], atol=1e-5)
