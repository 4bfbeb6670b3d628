"""Transformer-XL against XLNet, and the shift that is wrong above the diagonal."""

from __future__ import annotations

import torch
from transformers import XLNetConfig, XLNetModel
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from clockhands import positions
from clockhands.attention import attend_reference
from clockhands.schemes import AttentionInputs, TransformerXL
from tests.schemes.peers import agree, copied, leaf

HEADS, LENGTH, WIDTH = 3, 7, 8
D = HEADS * WIDTH


def pair() -> tuple[TransformerXL, XLNetRelativeAttention, XLNetModel]:
    config = XLNetConfig(d_model=D, n_head=HEADS, d_inner=8, n_layer=1, vocab_size=5, dropout=0.0)
    model, ours = XLNetModel(config).eval(), TransformerXL(D, HEADS, WIDTH)
    theirs = model.layer[0].rel_attn
    with torch.no_grad():
        theirs.r.copy_(ours.project_HKD.normal_().permute(2, 0, 1))
        theirs.r_w_bias.copy_(ours.u_HK.normal_())
        theirs.r_r_bias.copy_(ours.v_HK.normal_())
    return ours, theirs, model


def test_attention_in_both_directions_is_xlnets() -> None:
    ours, theirs, model = pair()
    q, k, v = (leaf(2, HEADS, LENGTH, WIDTH, seed=seed) for seed in range(3))
    q2, k2, v2 = (copied(t) for t in (q, k, v))
    pos = positions.count_up(2, LENGTH)
    waves = model.relative_positional_encoding(LENGTH, LENGTH, 2)

    def peer() -> torch.Tensor:
        key_r = torch.einsum("ibh,hnd->ibnd", waves, theirs.r)
        out = theirs.rel_attn_core(*(t.permute(2, 0, 1, 3) for t in (q2, k2, v2)), key_r)
        return out.permute(1, 2, 0, 3)

    pairs = [(q, q2), (k, k2), (v, v2), (ours.u_HK, theirs.r_w_bias), (ours.v_HK, theirs.r_r_bias)]
    agree(lambda: attend_reference(ours, q, k, v, pos, pos).out_BHSK, peer, pairs, atol=1e-5)


def rel_shift(x_HST: torch.Tensor) -> torch.Tensor:
    """The authors' shift: pad a column, read the memory one row later."""
    heads, queries, keys = x_HST.shape
    padded = torch.cat([x_HST.new_zeros(heads, queries, 1), x_HST], dim=-1)
    return padded.view(heads, keys + 1, queries)[:, 1:].reshape(heads, queries, keys)


def test_trap_36_the_authors_shift_is_right_below_the_diagonal_and_garbage_above() -> None:
    ours, _, _ = pair()
    q, pos = torch.randn(1, HEADS, LENGTH, WIDTH), positions.count_up(1, LENGTH)
    backwards = positions.count_up(1, LENGTH).flip(-1)
    zero = torch.zeros(1, HEADS, 1, WIDTH)
    start = torch.zeros(1, 1, dtype=torch.long)
    by_distance = [ours.bias(AttentionInputs(q, zero, distance.expand(1, LENGTH), start)) for distance in backwards[0]]
    straight = torch.cat(by_distance, dim=-1)
    shifted, exact = rel_shift(straight[0]), ours.bias(AttentionInputs(q, zero.expand(-1, -1, LENGTH, -1), pos, pos))[0]
    below = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    torch.testing.assert_close(shifted[:, below], exact[:, below])
    assert not torch.allclose(shifted[:, ~below], exact[:, ~below], atol=1e-2)
