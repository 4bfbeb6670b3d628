"""Training that is divided over processes, as far as one process shows it (several: test_processes)."""

from __future__ import annotations

import torch

from clockhands.training.sharded import divide_moments


def test_moments_of_parameters_that_are_whole_stay_as_they_are() -> None:
    """One process divides nothing: the saved state returns, its other keys too."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.5)
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    optimizer.step()
    state = optimizer.state_dict()
    divided = divide_moments(optimizer, state)
    assert divided.keys() == state.keys() and divided["param_groups"] == state["param_groups"]
    torch.testing.assert_close(divided["state"][0], state["state"][0])
