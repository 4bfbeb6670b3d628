"""T5's buckets against T5 and x-transformers."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers.x_transformers import RelativePositionBias

from clockhands import positions
from clockhands.attention import attend
from clockhands.schemes import T5Bias
from clockhands.schemes.bias.t5 import list_bucket_starts
from tests.schemes.peers import agree, compute_bias, copied, leaf

SETTINGS = [(32, 128), (16, 64), (8, 20), (64, 256), (20, 100)]


def bias(scheme: T5Bias, queries: int, keys: int) -> torch.Tensor:
    at = positions.count_up(1, queries, start=keys - queries), positions.count_up(1, keys)
    return compute_bias(scheme, *at, heads=len(scheme.table_HN))


@pytest.mark.parametrize(("buckets", "furthest"), SETTINGS)
@pytest.mark.parametrize("both", [True, False])
def test_trap_32_buckets_are_those_of_t5_and_x_transformers(buckets: int, furthest: int, both: bool) -> None:
    offset = torch.arange(-600, 601)
    ours = T5Bias(2, 8, num_buckets=buckets, max_distance=furthest, bidirectional=both).bucket(-offset)
    assert torch.equal(ours, T5Attention._relative_position_bucket(offset, both, buckets, furthest))
    theirs = RelativePositionBias._relative_position_bucket(offset, not both, buckets, furthest)
    assert torch.equal(ours, theirs)
    assert (ours[offset > 0].unique().numel() > 1) == both, "only both directions tell keys on the right apart"


def test_boundaries_are_exact_where_the_logarithm_is_a_whole_number() -> None:
    assert list_bucket_starts(32, 128)[-1] == math.ceil(16 * 8 ** (15 / 16))
    starts = list_bucket_starts(8, 64)
    assert starts == [1, 2, 3, 4, 8, 16, 32], "4·16^(b/4) begins each bucket exactly"
    assert list_bucket_starts(8, 2**62)[-1] == 2**47, "4·(2^60)^(3/4), in no time"


@pytest.mark.parametrize("decoder", [True, False])
def test_bias_and_its_gradient_are_t5s(decoder: bool) -> None:
    config = T5Config(d_model=24, num_heads=6, d_kv=4, is_decoder=decoder)
    theirs, ours = T5Attention(config, has_relative_attention_bias=True), T5Bias(6, 24, decoder)
    weight = theirs.relative_attention_bias.weight
    with torch.no_grad():
        ours.table_HN.copy_(weight.T)
    out, wanted = bias(ours, 40, 40), theirs.compute_bias(40, 40)
    torch.testing.assert_close(out, wanted)
    goal = torch.randn(out.shape)
    (gradient,), (peer,) = (
        torch.autograd.grad((x * goal).sum(), y) for x, y in ((out, ours.table_HN), (wanted, weight))
    )
    torch.testing.assert_close(gradient.T, peer)
    torch.testing.assert_close(bias(ours, 1, 40), theirs.compute_bias(1, 40, past_seen_tokens=39))


def test_whole_attention_is_t5s_with_its_unscaled_logits() -> None:
    config = T5Config(d_model=24, num_heads=6, d_kv=4, is_decoder=False, dropout_rate=0.0)
    theirs = T5Attention(config, has_relative_attention_bias=True).eval()
    ours = T5Bias(6, 24, False, logit_scale="none")
    with torch.no_grad():
        ours.table_HN.copy_(theirs.relative_attention_bias.weight.T)
    x = leaf(2, 9, 24)
    y, pos = copied(x), positions.count_up(2, 9)

    def mine() -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (6, 4)).transpose(1, 2) for layer in (theirs.q, theirs.k, theirs.v))
        return theirs.o(attend(ours, q, k, v, pos, pos).transpose(1, 2).flatten(2))

    agree(mine, lambda: theirs(y)[0], [(x, y)])


def test_bias_scale_is_that_of_x_transformers() -> None:
    theirs = RelativePositionBias(scale=8**0.5, causal=False, heads=6)
    ours = T5Bias(6, 24, False, bias_scale=8**0.5)
    with torch.no_grad():
        ours.table_HN.copy_(theirs.relative_attention_bias.weight.T)
    torch.testing.assert_close(bias(ours, 5, 30)[0], theirs(5, 30))
