"""The attention layer with grouped heads (Ainslie et al. 2023) under every scheme, against the schemes' oracles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clockhands.model.attention import AttentionContext, CrossAttention, LatentAttention, SelfAttention
from clockhands.model.masks import Placement
from clockhands.schemes import Scheme
from tests.model.tiny import core, model, words
from tests.schemes.laws import HEAD_DIM, HEADS, WIDTH, attending, between, inputs, make
from tests.schemes.oracles import ORACLES, Case, weights

# Hundreds of small cells over code that the oracles' tests cover: tracing them would double what they take.
pytestmark = pytest.mark.no_cover

Options = dict[str, Any]
KV_HEADS = 2


def built(kind: type[nn.Module]) -> Any:
    """An attention layer of six query heads, of which three share a key and a value head."""
    made = kind(core(d_model=WIDTH, num_heads=HEADS, num_kv_heads=KV_HEADS, attention_bias=True)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape) * WIDTH**-0.5)
    return made


def heads(x_SD: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One projection written out in float64, [heads, tokens, channels]; keys and values once for each query head."""
    projected = x_SD.double() @ weight.double().T + bias.double()
    split = [projected[:, start : start + HEAD_DIM] for start in range(0, projected.shape[1], HEAD_DIM)]
    return torch.stack([split[h * len(split) // HEADS] for h in range(HEADS)])


def oracle(scheme: Scheme, name: str, options: Options, layer: Any, data: tuple[Tensor, ...], causal: bool) -> Tensor:
    """What the layer must answer for one row: the oracle between its projections."""
    x_SD, source_TD, qpos, kpos = data
    if isinstance(layer, SelfAttention):
        q, k, v = zip(layer.qkv.weight.split(layer.qkv.widths), layer.qkv.bias.split(layer.qkv.widths), strict=True)
    else:
        q = (layer.q.weight, layer.q.bias)
        k, v = zip(layer.kv.weight.split(layer.kv.widths), layer.kv.bias.split(layer.kv.widths), strict=True)
    asked, found, told = heads(x_SD, *q), heads(source_TD, *k), heads(source_TD, *v)
    expected = ORACLES[name](Case(scheme, options, asked, found, told, qpos, kpos, x_SD.double(), causal, WIDTH))
    out = weights(expected.logits_HST, causal) @ told if expected.out_HSK is None else expected.out_HSK
    return out.transpose(0, 1).flatten(1) @ layer.out.weight.double().T + layer.out.bias.double()


@attending("grouped", in_turn=True)
@torch.no_grad()
def test_grouped_heads_equal_the_oracle(name: str, options: Options, causal: bool) -> None:
    scheme, layer = make(name, options, causal), built(SelfAttention)
    data = inputs(scheme)
    got = layer(data.x, AttentionContext(scheme, Placement(data.pos, data.pos, causal=causal)))
    wanted = oracle(scheme, name, options, layer, (data.x[0], data.x[0], data.pos[0], data.pos[0]), causal)
    torch.testing.assert_close(got[0].double(), wanted, atol=1e-4, rtol=1e-4)


@between("grouped")
@torch.no_grad()
def test_grouped_heads_between_target_and_source_equal_the_oracle(name: str, options: Options, causal: bool) -> None:
    """The target is shorter than the source and stands at other positions."""
    scheme, layer = make(name, options, causal), built(CrossAttention)
    stands = [torch.tensor([row, row[::-1]]) for row in ([7, 0, 3, 8, 1], [2, 5, 6, 1, 0, 4, 8, 3])]
    target, source = (inputs(scheme, length=pos.shape[1], pos=pos) for pos in stands)
    got = layer(target.x, source.x, AttentionContext(scheme, Placement(target.pos, source.pos)))
    wanted = oracle(scheme, name, options, layer, (target.x[1], source.x[1], target.pos[1], source.pos[1]), False)
    torch.testing.assert_close(got[1].double(), wanted, atol=1e-4, rtol=1e-4)


@attending("grouped", in_turn=True)
@torch.no_grad()
def test_a_scheme_says_whether_it_rotates_equal_keys_alike_in_every_head_and_how_wide_they_become(
    name: str, options: Options, causal: bool
) -> None:
    scheme = make(name, options, causal)
    data = inputs(scheme)
    pos = data.pos if (own := scheme.locate(data.x, data.pos, None)) is None else own[:, :1].expand_as(own)
    equal_BHTK = data.k[:, :1].expand_as(data.k)
    _, rotated_BHTK = scheme.rotate(data.q, equal_BHTK, pos, pos)
    assert bool((rotated_BHTK == rotated_BHTK[:, :1]).all()) is not scheme.rotates_by_head
    assert rotated_BHTK.shape[-1] == scheme.widening * data.k.shape[-1]


OPTIONS = {"latent_width": 12, "latent_query_width": 10, "shared_key_dim": 4, "value_dim": 6}


@torch.no_grad()
def test_keys_and_values_of_all_heads_come_from_one_state() -> None:
    attention = LatentAttention(core(kind="decoder", **OPTIONS)).double()
    x_BSD = torch.randn(1, 3, 32, dtype=torch.float64)
    _, keys, values = attention.project(x_BSD)
    for token in range(3):
        latent = attention.kv_down.weight[:12] @ x_BSD[0, token]
        latent = latent / (latent.square().mean() + 1e-6).sqrt() * attention.kv_latent_norm.weight
        rows = (attention.kv_up.weight @ latent).view(4, 4 + 6)
        shared = attention.kv_down.weight[12:] @ x_BSD[0, token]
        for head in range(4):
            torch.testing.assert_close(keys[0, head, token], torch.cat([shared, rows[head, :4]]))
            torch.testing.assert_close(values[0, head, token], rows[head, 4:])


@torch.no_grad()
def test_token_by_token_is_all_at_once() -> None:
    made, text = model(decoder={"scheme": "rope", "fraction": 0.5}, **OPTIONS), words(2, 12)
    first = made(input_ids=text[:, :-1], use_cache=True)
    last = made(input_ids=text[:, -1:], past_key_values=first.past_key_values, use_cache=True)
    torch.testing.assert_close(last.logits[:, 0], made(input_ids=text).logits[:, -1], rtol=1e-5, atol=1e-5)
