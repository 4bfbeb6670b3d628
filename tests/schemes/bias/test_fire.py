"""FIRE: when a shift changes it, and when not."""

from __future__ import annotations

import torch

from clockhands import positions
from clockhands.schemes import Fire
from clockhands.schemes.bias.mlp import Perceptron, evaluate_piecewise
from tests.schemes.peers import compute_bias


def bias(scheme: Fire, start: int) -> torch.Tensor:
    return compute_bias(scheme, positions.count_up(1, 9, start=start))


def test_a_shift_changes_the_bias_only_past_the_threshold() -> None:
    torch.manual_seed(0)
    scheme = Fire(4, length=20.0)
    assert torch.equal(bias(scheme, 0), bias(scheme, 5))
    assert not torch.allclose(bias(scheme, 0), bias(scheme, 40), atol=1e-3)


def test_trap_40_the_two_readings_of_the_threshold_differ() -> None:
    torch.manual_seed(0)
    whole = Fire(4, length=20.0)
    halved = Fire(4, length=20.0, threshold="halved")
    halved.load_state_dict(whole.state_dict())
    equal = Fire(4, length=10.0)
    equal.load_state_dict(whole.state_dict())
    assert not torch.allclose(bias(whole, 0), bias(halved, 0), atol=1e-4)
    assert torch.equal(bias(equal, 0), bias(halved, 0))


def test_a_threshold_that_was_learned_below_zero_is_its_amount() -> None:
    """Equation 18 of the paper has max(i, |L|)."""
    torch.manual_seed(0)
    scheme, found = Fire(4, length=20.0), []
    for factor in (0.5, -0.5):
        with torch.no_grad():
            scheme.factor.fill_(factor)
        scheme.zero_grad()
        # Queries before the threshold of 10 and after it.
        out = bias(scheme, 5)
        out.sum().backward()
        found.append((out.detach(), scheme.factor.grad.clone()))
    torch.testing.assert_close(found[1][0], found[0][0])
    assert found[0][1] != 0
    torch.testing.assert_close(found[1][1], -found[0][1])


def test_far_beyond_the_threshold_it_sees_shares_of_the_way_back() -> None:
    torch.manual_seed(0)
    scheme = Fire(2, length=1.0, c=1e6)
    far = [compute_bias(scheme, torch.tensor([[n]]), torch.zeros(1, 1).long(), 2) for n in (1_000, 100_000)]
    torch.testing.assert_close(far[0], far[1])


def test_units_that_bend_and_a_straight_line_are_the_network_and_its_gradients() -> None:
    torch.manual_seed(0)
    network = Perceptron(1, 32, 8, activation=torch.nn.ReLU).double()
    with torch.no_grad():  # units that never begin or end, and one that is always at the bend
        network.linears()[0].weight[:3] = 0
        network.linears()[0].bias[:3] = torch.tensor([0.4, -0.4, 0.0])
    x = torch.cat([torch.linspace(-3, 3, 500), torch.tensor([1e4, 1e7])]).double().requires_grad_()
    leaves, goal = [x, *network.parameters()], torch.randn(502, 8, dtype=torch.float64)
    results = [
        (out, *torch.autograd.grad(out, leaves, goal))
        for out in (network(x[:, None]), evaluate_piecewise(network, x).T)
    ]
    torch.testing.assert_close(results[1], results[0])
