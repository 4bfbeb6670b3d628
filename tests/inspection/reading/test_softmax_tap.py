"""What is kept of a module until its softmax, and of which module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clockhands.inspection.reading.softmax_tap import MOST_PRODUCTS, RunningModules, SoftmaxTap


class _Products(nn.Module):
    """Multiplies more often than a softmax could need, as a layer without attention may."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3 * MOST_PRODUCTS):
            _ = x @ x.transpose(-1, -2)
        return x @ self.weight


def test_products_are_kept_of_the_running_module_and_never_more_than_some() -> None:
    inner = _Products()
    model = nn.Sequential(inner)
    with RunningModules(model) as running, SoftmaxTap(running, lambda call: None) as tap:
        model(torch.ones(1, 2, 4, 3))
        assert {module: len(kept) for module, kept in tap.operands.items()} == {inner: MOST_PRODUCTS}
        assert not running.modules


class _Einsum(nn.Module):
    """Attention by einsum, whose equation may leave out the axes of the result."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))
        self.equation = equation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = torch.einsum(self.equation, x, x @ self.weight)
        return logits.softmax(-1)


@pytest.mark.parametrize(("equation", "seen"), [("abcd,abed->abce", 1), ("...cd,...ed", 0)])
def test_an_equation_without_an_arrow_is_left_out_and_does_not_stop_the_model(equation: str, seen: int) -> None:
    model, received = _Einsum(equation), []
    x = torch.randn(2, 4, 5, 3, generator=torch.Generator().manual_seed(0))
    with RunningModules(model) as running, SoftmaxTap(running, received.append):
        weights = model(x)
    assert len(received) == seen
    torch.testing.assert_close(weights, (x @ x.transpose(-1, -2)).softmax(-1))
