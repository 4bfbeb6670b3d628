"""Blocks of queries inside a window give what the reference gives, at every length and every end of a text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clockhands import positions
from clockhands.attention import attend, attend_reference, by_distance, window_blocks
from clockhands.attention.request import make_request
from clockhands.schemes import Composition, RoPE, Window

HEADS, WIDTH = 2, 8


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_distance, "SHORT", 8)
    monkeypatch.setattr(window_blocks, "ROWS", 4)
    monkeypatch.setattr(window_blocks, "WIDER", 2)


def make_inputs(queries: int, keys: int, first: int = 0) -> list[Any]:
    """Queries, keys and values as views of [B, S, H, K], and positions from ``first`` on."""
    rows = (torch.randn(2, n, HEADS, WIDTH, dtype=torch.float64).requires_grad_() for n in (queries, keys, keys))
    pos = positions.count_up(2, keys) + first
    return [*rows, pos[:, keys - queries :], pos]


def serves(scheme: Any, inputs: list[Any], mask: Any = None, **options: Any) -> bool:
    q, k, v = (x.transpose(1, 2) for x in inputs[:3])
    return window_blocks.serves(make_request(scheme, q, k, v, *inputs[3:], mask, **options))


@pytest.mark.parametrize(("queries", "keys"), [(21, 21), (24, 24), (19, 30), (13, 60)])
@pytest.mark.parametrize(
    ("left", "right", "causal"), [(5, 5, True), (0, 0, True), (9, 3, True), (5, 2, False), (0, 7, False)]
)
def test_output_and_gradients_are_the_reference_s(queries: int, keys: int, left: int, right: int, causal: bool) -> None:
    scheme, inputs = Window(HEADS, left=left, right=right), make_inputs(queries, keys, first=7)
    assert serves(scheme, inputs, causal=causal)
    q, k, v = (x.transpose(1, 2) for x in inputs[:3])
    fast = attend(scheme, q, k, v, *inputs[3:], causal=causal)
    slow = attend_reference(scheme, q, k, v, *inputs[3:], causal=causal).out_BHSK
    goal = torch.randn_like(slow)
    torch.testing.assert_close(fast, slow, rtol=1e-6, atol=1e-6)
    fast_grads, slow_grads = (torch.autograd.grad((out * goal).sum(), inputs[:3]) for out in (fast, slow))
    torch.testing.assert_close(fast_grads, slow_grads, rtol=1e-6, atol=1e-6)


def test_a_window_beside_rope_is_served() -> None:
    scheme = Composition(schemes=[RoPE(WIDTH), Window(HEADS, left=5)])
    assert serves(scheme.after_rotation(), make_inputs(21, 21), causal=True)


def test_what_is_no_text_or_has_a_mask_is_left_to_others() -> None:
    scheme, inputs = Window(HEADS, left=5), make_inputs(21, 21)
    assert serves(scheme, inputs, causal=True)
    assert not serves(scheme, inputs, torch.ones(2, 1, 1, 21, dtype=torch.bool), causal=True)
    assert not serves(scheme, inputs, causal=True, dropout=0.1)
    assert not serves(Window(HEADS, left=20), inputs, causal=True)
    gap = inputs[3] + (inputs[3] > 9)
    assert not serves(scheme, [*inputs[:3], gap, gap], causal=True)
    later = inputs[3] + 1
    assert not serves(scheme, [*inputs[:3], later, inputs[4]], causal=True)


@pytest.mark.parametrize("gradient", [True, False])
def test_sixteen_bits_are_the_reference_to_their_precision(gradient: bool) -> None:
    scheme, inputs = Window(HEADS, left=5), make_inputs(40, 40)
    q, k, v = (x.detach().to(torch.bfloat16).requires_grad_(gradient).transpose(1, 2) for x in inputs[:3])
    exact = attend_reference(scheme, q.double(), k.double(), v.double(), *inputs[3:], causal=True).out_BHSK
    torch.testing.assert_close(attend(scheme, q, k, v, *inputs[3:], causal=True).double(), exact, rtol=4e-2, atol=4e-2)
