"""The network of distances against x-transformers."""

from __future__ import annotations

import pytest
import torch
from x_transformers.x_transformers import DynamicPositionBias as Peer

from clockhands import positions
from clockhands.schemes import DynamicPositionBias
from clockhands.schemes.bias.mlp import Perceptron
from tests.schemes.peers import agree, compute_bias


@pytest.mark.parametrize("log_distance", [True, False])
def test_bias_and_its_gradients_are_those_of_x_transformers(log_distance: bool) -> None:
    theirs = Peer(12, heads=4, depth=2, log_distance=log_distance)
    ours = DynamicPositionBias(4, hidden=12, depth=2, log_distance=log_distance)
    layers = [module for module in theirs.modules() if isinstance(module, torch.nn.Linear)]
    pairs = [(mine.weight, peer.weight) for mine, peer in zip(ours.mlp.linears(), layers, strict=True)]
    pairs += [(mine.bias, peer.bias) for mine, peer in zip(ours.mlp.linears(), layers, strict=True)]
    with torch.no_grad():
        for mine, peer in pairs:
            mine.copy_(peer)
    at = positions.count_up(1, 5, start=25), positions.count_up(1, 30)
    agree(lambda: compute_bias(ours, *at)[0], lambda: theirs(5, 30), pairs, atol=1e-5)


def test_only_the_last_layer_can_be_without_a_bias() -> None:
    with_biases = {last: [layer.bias is not None for layer in Perceptron(1, 4, 4, 2, last_bias=last).linears()]
                   for last in (True, False)}  # fmt: skip
    assert with_biases == {True: [True, True, True], False: [True, True, False]}
