"""``score_mod`` in FlexAttention gives what the bias gives, for every scheme that has a bias."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from clockhands import positions
from clockhands.attention import attend_reference
from clockhands.errors import PositionError
from clockhands.schemes import CATALOGUE, AttentionInputs, Chunks, Scheme, Window
from tests.schemes.laws import inputs, make, place

BIASED = [name for name in CATALOGUE if CATALOGUE[name].hooks() & {"bias"} and not CATALOGUE[name].hooks() & {"logits"}]


@pytest.mark.parametrize("name", BIASED)
def test_trap_35_flex_attention_with_score_mod_is_attention_with_the_bias(name: str) -> None:
    options = {"values": False} if name == "shaw" else {}
    scheme = make(name, options).requires_grad_(False)
    data = inputs(scheme)
    pos = place(scheme, data)
    q, k = scheme.rotate(data.q, data.k, pos, pos)
    modify = scheme.score_mod(pos, pos, q, k)
    lower = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()

    def causal(score: torch.Tensor, *at: torch.Tensor) -> torch.Tensor:
        return torch.where(lower[at[2], at[3]], modify(score, *at), -torch.inf)

    got = flex_attention(q, k, data.v, score_mod=causal, scale=scheme.scale(data.q.shape[-1]))
    expected = attend_reference(scheme, data.q, data.k, data.v, pos, pos, causal=True).out_BHSK
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("scheme", [Window(6, left=1), Window(6, left=1, axis=1), Chunks(size=2)])
def test_score_mod_on_a_grid_is_the_bias(scheme: Scheme) -> None:
    pos, q = positions.make_grid(2, 3, 4), torch.zeros(2, 6, 12, 4)
    modify, size = scheme.score_mod(pos, pos, q, q), (2, 6, 12, 12)
    at = torch.meshgrid(*map(torch.arange, size), indexing="ij")
    bias = scheme.bias(AttentionInputs(q, q, pos, pos))
    assert bias is not None and bool(bias.isinf().any())
    assert torch.equal(modify(torch.zeros(size), *at), bias.expand(size))


def test_content_schemes_ask_for_queries_and_keys() -> None:
    scheme = make("fire", {})
    with pytest.raises(PositionError, match="score_mod of Fire looks at q and k; pass both"):
        scheme.score_mod(torch.arange(3)[None], torch.arange(3)[None])


def test_a_table_of_distances_needs_whole_positions() -> None:
    scheme = make("alibi", {})
    with pytest.raises(PositionError, match="needs integer positions"):
        scheme.score_mod(torch.rand(1, 3), torch.rand(1, 3))
