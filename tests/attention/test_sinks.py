"""Sinks beside the fused kernel, against a softmax with one more column, in outputs and all gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.attention import attend, attend_reference
from clockhands.attention.request import make_request
from clockhands.attention.sinks import attend_with_sinks, fuses_sinks
from clockhands.schemes import Sinks

HEADS, WIDTH, SCALE = 3, 8, 0.7


def make_leaves(queries: int, keys: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Queries, keys and values of two rows, as views of [B, S, H, K]."""
    rows = (torch.randn(2, n, HEADS, WIDTH, dtype=dtype).requires_grad_() for n in (queries, keys, keys))
    return [row.transpose(1, 2) for row in rows]


def attend_with_a_column(q: Tensor, k: Tensor, v: Tensor, sink_BHS: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the keys and one more column, which is then dropped: gpt-oss's model code."""
    logits = (SCALE * q.double() @ k.double().mT).masked_fill(~mask, -torch.inf)
    sink = sink_BHS.double().expand(logits.shape[:3])[..., None]
    return torch.softmax(torch.cat([logits, sink], dim=-1), dim=-1)[..., :-1] @ v.double()


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "any": {"attn_mask": torch.rand(2, HEADS, 21, 21) > 0.5},
    "of one row": {"attn_mask": torch.rand(2, 1, 1, 21) > 0.5},
    "a query without keys": {"attn_mask": (torch.arange(21) != 4)[:, None].expand(1, 1, 21, 21)},
    "of floats, of two axes": {"attn_mask": torch.zeros(21, 21).masked_fill(torch.rand(21, 21) > 0.5, -torch.inf)},
}
SINKS = {"a head": (HEADS, 1), "a row and head": (2, HEADS, 1), "a query": (2, HEADS, 21), "all": (1, 1)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sinks", SINKS)
@pytest.mark.parametrize("kind", MASKS)
def test_output_and_gradients_are_those_of_a_softmax_with_one_more_column(
    kind: str, sinks: str, dtype: torch.dtype
) -> None:
    options: dict[str, Any] = dict(MASKS[kind])
    mask = options.get("attn_mask", torch.ones(21, 21, dtype=torch.bool))
    wide = torch.promote_types(dtype, torch.float32)
    if mask.is_floating_point():
        options["attn_mask"], mask = mask.to(wide), mask == 0
    sees = mask.tril() if kind == "causal" else mask
    leaves = [*make_leaves(21, 21, dtype), (2 * torch.randn(SINKS[sinks], dtype=wide)).requires_grad_()]
    got = attend_with_sinks(*leaves, scale=SCALE, **options)
    wanted = attend_with_a_column(*leaves, sees)
    assert got.dtype == dtype
    goal = torch.randn(wanted.shape, dtype=torch.float64)
    limit = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(got.double(), wanted, atol=limit, rtol=limit)
    grads = (torch.autograd.grad((out.double() * goal).sum(), leaves) for out in (got, wanted))
    for fast, slow in zip(*grads, strict=True):
        size = max(1.0, float(slow.abs().max()))
        torch.testing.assert_close(fast, slow, atol=limit * size, rtol=limit)


@pytest.mark.parametrize("logit", [-torch.inf, -200.0, 200.0])
def test_a_sink_far_from_all_logits_takes_nothing_or_all(logit: float) -> None:
    leaves = [*make_leaves(9, 9, torch.float32), torch.full((HEADS, 1), logit, requires_grad=True)]
    out = attend_with_sinks(*leaves, scale=SCALE, is_causal=True)
    grads = torch.autograd.grad(out.sum(), leaves)
    assert all(bool(x.isfinite().all()) for x in (out, *grads))
    plain = torch.nn.functional.scaled_dot_product_attention(*leaves[:3], is_causal=True, scale=SCALE)
    torch.testing.assert_close(out, torch.zeros_like(out) if logit > 0 else plain)


def request(queries: int, keys: int, value_width: int = WIDTH, **options: Any) -> Any:
    q, k, v = make_leaves(queries, keys, torch.float32)
    v = torch.randn(2, HEADS, keys, value_width)
    kpos = positions.count_up(2, keys)
    return (Sinks(HEADS), q, k, v, positions.count_up(2, queries, start=keys - queries), kpos), options


@pytest.mark.parametrize(
    ("case", "fused"),
    [
        (request(9, 9, causal=True), True),
        (request(1, 9, causal=True), True),
        (request(9, 9, value_width=4), True),
        (request(9, 9, value_width=12), False),
        (request(9, 9, scale=-0.5, causal=True), True),
        (request(9, 0), False),
        (request(0, 0), False),
    ],
)
def test_what_the_kernel_does_not_take_is_computed_all_the_same(case: Any, fused: bool) -> None:
    arguments, options = case
    assert fuses_sinks(make_request(*arguments, **options)) is fused
    wanted = attend_reference(*arguments, **options).out_BHSK
    torch.testing.assert_close(attend(*arguments, **options), wanted, atol=1e-5, rtol=1e-5)


def test_dropout_is_left_to_others() -> None:
    arguments, _ = request(9, 9)
    assert not fuses_sinks(make_request(*arguments, dropout=0.1))


def test_a_trace_holds_operations_that_other_programs_know() -> None:
    arguments, _ = request(9, 9)
    scheme, q, k, v, qpos, kpos = arguments
    scheme.requires_grad_(False)
    traced = torch.jit.trace(lambda q, k, v: attend(scheme, q, k, v, qpos, kpos, causal=True), (q.detach(), k, v))
    assert "softmax" in str(traced.graph)
    assert not any(word in str(traced.graph) for word in ("PythonOp", "flash"))
