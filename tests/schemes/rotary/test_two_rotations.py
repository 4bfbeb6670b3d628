"""ReRoPE, Self-Extend and dual chunks: no distance that was never trained, and every pair scaled alike."""

from __future__ import annotations

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend_reference
from clockhands.schemes import AttentionInputs, Composition, DualChunk, ReRoPE, RoPE, SelfExtend, T5Bias
from clockhands.schemes.rotary.two_rotations import TwoRotations

LENGTH, WIDTH, TRAINED = 200, 16, 64
SCHEMES = [
    ReRoPE(WIDTH, window=32),
    SelfExtend(WIDTH, window=32, group=8),
    DualChunk(WIDTH, original_length=TRAINED, chunk=48),
]
every = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: type(scheme).__name__)


def heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, keys and values in float64."""
    q, k, v = torch.randn(3, 1, 2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1)).double().unbind(0)
    return q, k, v


@every
def test_every_pair_of_a_long_text_meets_at_a_distance_within_the_trained_length(scheme: TwoRotations) -> None:
    """Each logit is RoPE's at some whole distance below the trained length, to 1e-6 of the largest."""
    q, k, _ = heads()
    pos = positions.count_up(1, LENGTH)
    got = attend_reference(scheme, q, k, k, pos, pos, causal=True).logits_BHST[0, 0]
    trained = torch.arange(TRAINED)[None]
    turned, _ = RoPE(WIDTH).rotate(k[:, :, :1].expand(-1, -1, TRAINED, -1), k[:, :, :TRAINED], -trained, trained)
    at_SR = torch.einsum("sk,rk->sr", q[0, 0], turned[0, 0]) / WIDTH**0.5
    apart = (got[:, :1] - at_SR).abs().amin(-1)
    assert float(apart.max()) < 1e-6 * float(got.abs().max()), "the first key, seen from everywhere"


@every
def test_a_factor_on_the_products_is_on_those_of_far_pairs_too(scheme: TwoRotations) -> None:
    """Every logit is a product of a query and a key, so that four times the factor makes each four times as large."""
    q, k, v = heads()
    pos = positions.count_up(1, LENGTH)
    usual = attend_reference(scheme, q, k, v, pos, pos, causal=True).logits_BHST
    got = attend_reference(scheme, q, k, v, pos, pos, causal=True, scale=4 / WIDTH**0.5).logits_BHST
    torch.testing.assert_close(got, 4 * usual)


@every
def test_beside_a_bias_whose_products_are_not_scaled_far_pairs_are_not_scaled_either(scheme: TwoRotations) -> None:
    q, k, v = heads()
    pos, bias = positions.count_up(1, LENGTH), T5Bias(2, 8, logit_scale="none")
    alone = attend_reference(scheme, q, k, v, pos, pos, causal=True, scale=1.0).logits_BHST
    together = attend_reference(Composition(schemes=[scheme, bias]), q, k, v, pos, pos, causal=True).logits_BHST
    torch.testing.assert_close(together, alone + bias.bias(AttentionInputs(q, k, pos, pos)))
