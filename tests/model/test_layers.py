"""Feed-forward layers without an activation, against what makes a map linear or bilinear."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
import torch

from clockhands.model import TransformerConfig
from clockhands.model.layers import ACTIVATIONS, ExpertMixture, FeedForward
from tests.model.tiny import core


def _make(**options: Any) -> FeedForward:
    torch.manual_seed(0)
    config = TransformerConfig(vocab_size=10, d_model=8, num_heads=2, d_ff=16, activation="identity", **options)
    return FeedForward(config).double().eval()


def test_every_activation_of_a_configuration_has_its_function() -> None:
    assert set(get_args(get_type_hints(TransformerConfig)["activation"])) == set(ACTIVATIONS)


def test_without_an_activation_the_layer_is_affine() -> None:
    layer = _make(ffn_bias=True)
    x, y = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(3 * x - 2 * y), 3 * layer(x) - 2 * layer(y))
    torch.testing.assert_close(layer(x) - layer(0 * x), x @ (layer.down.weight @ layer.up.weight).T)


def test_gated_without_an_activation_it_is_quadratic() -> None:
    layer = _make(gated=True, ffn_bias=False)
    x = torch.randn(5, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(-3 * x), 9 * layer(x))


TOKENS = 7


def make_layer(**changes: object) -> ExpertMixture:
    torch.manual_seed(0)
    return ExpertMixture(core(kind="decoder", **changes)).double().eval()


@pytest.mark.parametrize("router", ["softmax", "sigmoid", "sigmoid-input"])
@torch.no_grad()
def test_each_token_is_read_by_the_experts_that_its_router_prefers(router: str) -> None:
    layer = make_layer(experts=5, experts_per_token=2, router=router, router_scale=2.5)
    x_BSD = torch.randn(1, TOKENS, 32, dtype=torch.float64)
    got = layer(x_BSD)[0]
    for x_D, sum_D in zip(x_BSD[0], got, strict=True):
        logits = layer.router(x_D)
        best = logits.argsort(descending=True)[:2].tolist()
        if router == "softmax":
            shares = [float(logits[e].exp()) for e in best]
            expected = sum(s / sum(shares) * layer.experts[e](x_D) for s, e in zip(shares, best, strict=True))
        elif router == "sigmoid":
            shares = [float(logits[e].sigmoid()) for e in best]
            expected = sum(2.5 * s / sum(shares) * layer.experts[e](x_D) for s, e in zip(shares, best, strict=True))
        else:
            expected = sum(layer.experts[e](x_D * logits[e].sigmoid()) for e in best)
        # Sigmoids are computed in float32.
        torch.testing.assert_close(sum_D, expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_equal_experts_are_one_network() -> None:
    layer = make_layer(experts=4, experts_per_token=3, shared_expert_width=24)
    for expert in layer.experts[1:]:
        expert.load_state_dict(layer.experts[0].state_dict())
    x_BSD = torch.randn(2, TOKENS, 32, dtype=torch.float64)
    assert layer.shared is not None
    torch.testing.assert_close(layer(x_BSD), layer.experts[0](x_BSD) + layer.shared(x_BSD))


@torch.no_grad()
def test_the_constant_of_an_expert_chooses_it_and_is_no_factor() -> None:
    layer = make_layer(experts=4, experts_per_token=1, router="sigmoid")
    assert layer.correction_E is not None
    layer.correction_E[2] = 5.0
    x_BSD = torch.randn(1, TOKENS, 32, dtype=torch.float64)
    torch.testing.assert_close(layer(x_BSD), layer.experts[2](x_BSD))


@torch.no_grad()
def test_experts_come_from_the_groups_whose_two_best_are_the_best() -> None:
    """The highest score is in group 0, whose second is low; both experts come from group 1."""
    layer = make_layer(experts=4, experts_per_token=2, router="sigmoid", expert_groups=2)
    layer.router.weight.zero_()
    assert layer.router.bias is not None
    layer.router.bias.copy_(torch.tensor([4.0, -4.0, 1.0, 0.9]))
    index, _ = layer.choose_experts(torch.zeros(1, 32, dtype=torch.float64))
    assert set(index[0].tolist()) == {2, 3}


@torch.no_grad()
def test_only_the_layers_that_are_named_have_experts() -> None:
    from clockhands.model import Transformer

    blocks = Transformer(core(kind="decoder", experts=2, expert_layers=(1,))).get_stack("decoder").blocks
    assert [type(block.feed_forward) for block in blocks] == [FeedForward, ExpertMixture]


def test_every_expert_that_was_chosen_learns() -> None:
    layer = make_layer(experts=3, experts_per_token=3)
    layer(torch.randn(1, TOKENS, 32, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
