"""Attention over few tokens in many rows: the reference, and PyTorch's own dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from clockhands import positions
from clockhands.attention import attend, attend_reference, short_rows
from clockhands.attention.request import make_request
from clockhands.schemes import CATALOGUE, NoPosition, Sizes, build

ROWS, HEADS, QUERIES, WIDTH = 32, 4, 11, 8


def make_leaves(factor: float = 1.0) -> list[Tensor]:
    """Queries, keys and values of many rows, as views of [B, S, H, K]."""
    leaves = (factor * torch.randn(ROWS, QUERIES, HEADS, WIDTH) for _ in range(3))
    return [leaf.transpose(1, 2).requires_grad_() for leaf in leaves]


@pytest.mark.parametrize("factor", [1.0, 6.0], ids=["", "logits that lie far apart"])
@pytest.mark.parametrize("kind", ["none", "padding", "any", "nothing to see"])
@pytest.mark.parametrize("name", ["none", "rope", "alibi", "t5", "window"])
def test_output_and_gradients_are_those_of_the_reference(name: str, kind: str, factor: float) -> None:
    options: dict[str, Any] = {"left": 3} if name == "window" else {}
    mask = torch.rand(ROWS, 1, 1 if kind == "padding" else QUERIES, QUERIES) > 0.3
    mask[..., 0] = True
    if kind == "nothing to see":
        mask[3, :, 5] = False
    visible, pos = None if kind == "none" else mask, positions.count_up(ROWS, QUERIES)
    for causal in (True, False):
        scheme, leaves = build(CATALOGUE, name, Sizes(32, 32, HEADS, WIDTH, 1, causal), options), make_leaves(factor)
        assert short_rows.serves(make_request(scheme, *leaves, pos, pos, visible, causal=causal))
        wanted, results = [*leaves, *scheme.parameters()], []
        goal = torch.randn(ROWS, HEADS, QUERIES, WIDTH)
        for out in (
            attend(scheme, *leaves, pos, pos, visible, causal=causal),
            attend_reference(scheme, *leaves, pos, pos, visible, causal=causal).out_BHSK,
        ):
            results.append([out, *torch.autograd.grad((out * goal).sum(), wanted)])
        for fast, slow in zip(*results, strict=True):
            size = max(1.0, float(slow.detach().abs().max()))
            torch.testing.assert_close(fast, slow, atol=5e-5 * size, rtol=1e-4)


def test_dropout_is_that_of_pytorch_to_the_number() -> None:
    leaves, pos = make_leaves(), positions.count_up(ROWS, QUERIES)
    results = []
    for ours in (True, False):
        torch.manual_seed(4)
        if ours:
            out = attend(NoPosition(), *leaves, pos, pos, causal=True, dropout=0.3)
        else:
            out = F.scaled_dot_product_attention(*leaves, is_causal=True, dropout_p=0.3)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["none", "rope", "alibi", "t5", "window", "temperature"])
@torch.no_grad()
def test_what_follows_a_short_batch_meets_no_number(name: str) -> None:
    """``FakeTensorMode`` has shapes alone, ``make_fx`` records; neither leaves anything behind in the scheme."""
    scheme = build(CATALOGUE, name, Sizes(HEADS * WIDTH, HEADS * WIDTH, HEADS, WIDTH))
    leaves, pos = make_leaves(), positions.count_up(ROWS, QUERIES)

    def run(q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
        return attend(scheme, q, k, v, pos, pos, causal=True)

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert run(*leaves, pos).shape == leaves[0].shape
    recorded = make_fx(run)(*leaves, pos)
    torch.testing.assert_close(recorded(*leaves, pos), run(*leaves, pos), atol=1e-5, rtol=1e-5)
