"""Feed-forward layers without an activation, against what makes a map linear or bilinear."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import torch

from clockhands.model import TransformerConfig
from clockhands.model.feed_forward import ACTIVATIONS, FeedForward


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
