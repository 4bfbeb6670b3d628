"""ALiBi against the libraries that have it, and the traps it has been caught in."""

from __future__ import annotations

import pytest
import torch
from transformers import MptConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as build_falcon_alibi
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from x_transformers.x_transformers import AlibiPositionalBias

from clockhands import positions
from clockhands.attention import attend
from clockhands.errors import ConfigError
from clockhands.schemes import Alibi
from clockhands.schemes.bias.alibi import alibi_slopes
from tests.schemes.peers import compute_bias

HEADS = [1, 2, 6, 8, 12, 20]


def table(scheme: Alibi, queries: int, keys: int | None = None) -> torch.Tensor:
    keys = keys or queries
    at = positions.count_up(1, queries, start=keys - queries), positions.count_up(1, keys)
    return compute_bias(scheme, *at, heads=scheme.num_heads)[0]


@pytest.mark.parametrize("heads", HEADS)
def test_trap_27_slopes_for_any_number_of_heads_are_those_of_every_careful_library(heads: int) -> None:
    ours = alibi_slopes(heads)
    assert torch.equal(ours, torch.tensor(AlibiPositionalBias._get_slopes(heads)))
    bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    for theirs in (bloom, -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("heads", [6, 12, 20])
def test_trap_27_plain_geometric_slopes_are_another_scheme_where_heads_are_no_power_of_two(heads: int) -> None:
    assert not torch.allclose(alibi_slopes(heads), alibi_slopes(heads, "geometric"), atol=1e-3)
    assert torch.allclose(alibi_slopes(8), alibi_slopes(8, "geometric"))


@pytest.mark.parametrize("heads", [8, 12])
def test_trap_31_a_shard_of_the_heads_takes_its_part_of_the_slopes_of_all(heads: int) -> None:
    """``score_mod`` counts heads over the whole layer; the slopes of half as many heads are others."""
    half = heads // 2
    whole, alone = table(Alibi(heads), 5), table(Alibi(half), 5)
    pos = positions.count_up(1, 5)
    modify, zero = Alibi(heads).score_mod(pos, pos), torch.zeros((), dtype=torch.long)
    shard = [[float(modify(torch.zeros(()), zero, zero + h, zero + 4, zero)) for h in range(half, heads)]]
    assert shard == [whole[half:, 4, 0].tolist()]
    assert not torch.allclose(whole[half:], alone)
    assert not torch.allclose(whole[:half], alone)


def test_only_the_papers_causal_slopes_are_those_of_an_mpt_config() -> None:
    for scheme in (Alibi(6), Alibi(8, slopes="geometric")):
        known = scheme.to_hf_config()
        assert known is not None
        built = MptConfig(n_heads=scheme.num_heads, max_seq_len=9, **known)
        assert built.attn_config.alibi
        theirs = build_mpt_alibi_tensor(built.n_heads, built.max_seq_len, built.attn_config.alibi_bias_max)[:, 0]
        torch.testing.assert_close(table(scheme, 1, 9)[:, 0], theirs)
    others = (Alibi(6, False), Alibi(6, slopes="geometric"), Alibi(6, learned=True), Alibi(6, form="broken"))
    assert [scheme.to_hf_config() for scheme in others] == [None] * 4


def test_symmetric_form_is_x_transformers_bias() -> None:
    torch.testing.assert_close(table(Alibi(6, False), 5, 9), AlibiPositionalBias(6)(5, 9))


def test_trap_28_distance_is_a_penalty_on_both_sides() -> None:
    bias_HST = table(Alibi(4, False), 7)
    assert bool((bias_HST <= 0).all())
    assert torch.equal(bias_HST, bias_HST.transpose(-1, -2))


def test_trap_29_the_column_trick_equals_alibi_under_a_causal_mask_and_only_there() -> None:
    heads, length = 4, 9
    q, k, v = torch.randn(3, 1, heads, length, 8).unbind(0)
    pos = positions.count_up(1, length)
    column = alibi_slopes(heads)[:, None, None] * torch.arange(length)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    for causal in (True, False):
        hidden = column.masked_fill(~mask, -torch.inf) if causal else column.expand(-1, length, -1)
        trick = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden[None])
        same = torch.allclose(attend(Alibi(heads, causal), q, k, v, pos, pos, causal=causal), trick, atol=1e-5)
        assert same == causal


def test_trap_04_the_bias_is_float32_whatever_the_model_is() -> None:
    far = table(Alibi(8).bfloat16(), 1, 16_386)[0, 0]
    slope = alibi_slopes(8).bfloat16()[0].float()
    assert far[0] == -16_385 * slope and far[1] == -16_384 * slope, "in bfloat16 neighbours at 16,000 are one position"


def test_trap_38_falcons_bias_is_rounded_and_divided_so_its_checkpoints_are_not_blooms() -> None:
    mask = torch.ones(1, 300, dtype=torch.long)
    bloom, falcon = (build(mask, 12, torch.float32) for build in (build_alibi_tensor, build_falcon_alibi))
    difference = (bloom - falcon).abs().max()
    assert difference > 0.4, "Falcon builds its bias in bfloat16"
    column = alibi_slopes(12)[:, None] * torch.arange(300)
    torch.testing.assert_close(column, bloom[:, 0], atol=1e-4, rtol=1e-5)


def test_asymmetric_form_refuses_an_odd_number_of_heads() -> None:
    with pytest.raises(ConfigError, match="half of the heads, but there are 3"):
        Alibi(3, False, form="asymmetric")
