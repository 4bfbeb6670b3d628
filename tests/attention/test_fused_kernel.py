"""What the fused kernel of a GPU is not asked for, and sinks beside that of a CPU: a softmax with one more column."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.attention import attend, attend_reference, fused_kernel
from clockhands.attention.fused_kernel import attend_with_sinks, fuses_sinks
from clockhands.attention.request import make_request
from clockhands.schemes import Alibi, AttentionInputs, DistanceBias, RoPE, Scheme, Sinks, Window


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scheme", [Alibi(4), RoPE(32)], ids=["alibi", "rope"])
@pytest.mark.parametrize("compiling", [False, True])
def test_no_kernel_of_a_gpu_gets_a_bias_of_another_type(
    scheme: Scheme, dtype: torch.dtype, compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors without numbers stand for those of a GPU: all that is decided is decided by their types.

    PyTorch's memory-efficient kernel raises "invalid dtype for bias - should match query's dtype"; cuDNN's reads the
    numbers of one type as those of the other.
    """
    calls: list[dict[str, Any]] = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Tensor, **options: Any) -> Tensor:
        calls.append(options)
        return fused(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    q, pos = torch.empty(1, 4, 96, 32, dtype=dtype, device="meta"), torch.empty(1, 96, dtype=torch.long, device="meta")
    request = make_request(copy.deepcopy(scheme).to("meta"), q, q, q, pos, pos, causal=True)
    bias = "bias" in request.hooks
    added = torch.empty(1, 4, 96, 96, device="meta") if bias else None  # the scheme's own would be computed on the CPU
    out = fused_kernel.compute(replace(request, added_BHST=added, hooks=frozenset()))
    assert out.dtype == dtype and out.shape == q.shape
    assert len(calls) == (0 if bias and dtype != torch.float32 else 1)
    assert all(call["attn_mask"].dtype in (dtype, torch.bool) for call in calls if call.get("attn_mask") is not None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_products_of_a_gpu_are_the_reference(dtype: torch.dtype) -> None:
    """A query that may attend to nothing gets zeros there too."""
    torch.manual_seed(0)
    scheme, pos = Alibi(4), positions.count_up(2, 60)
    q, k, v = torch.randn(3, 2, 4, 60, 32).to(dtype).unbind(0)
    mask = torch.ones(2, 1, 1, 60, dtype=torch.bool)
    mask[0, ..., :5] = False
    request = make_request(scheme, q, k, v, pos, pos, mask, causal=True)
    got = fused_kernel._compute_by_plain_products(request, request.compute_bias())
    wanted = attend_reference(scheme, *(x.double() for x in (q, k, v)), pos, pos, mask, causal=True).out_BHSK
    assert not got[0, :, :5].any()
    torch.testing.assert_close(got.double(), wanted, atol=2e-2, rtol=2e-2)


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
def test_output_and_gradients_are_of_a_softmax_with_one_more_column(kind: str, sinks: str, dtype: torch.dtype) -> None:
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


def make_request_with_sinks(queries: int, keys: int, value_width: int = WIDTH, **options: Any) -> Any:
    q, k, v = make_leaves(queries, keys, torch.float32)
    v = torch.randn(2, HEADS, keys, value_width)
    kpos = positions.count_up(2, keys)
    return (Sinks(HEADS), q, k, v, positions.count_up(2, queries, start=keys - queries), kpos), options


@pytest.mark.parametrize(
    ("case", "fused"),
    [
        (make_request_with_sinks(9, 9, causal=True), True), (make_request_with_sinks(1, 9, causal=True), True),
        (make_request_with_sinks(9, 9, value_width=4), True), (make_request_with_sinks(9, 9, value_width=12), False),
        (make_request_with_sinks(9, 9, scale=-0.5, causal=True), True), (make_request_with_sinks(9, 0), False),
        (make_request_with_sinks(0, 0), False),
    ],
)  # fmt: skip
def test_what_the_kernel_does_not_take_is_computed_all_the_same(case: Any, fused: bool) -> None:
    arguments, options = case
    assert fuses_sinks(make_request(*arguments, **options)) is fused
    wanted = attend_reference(*arguments, **options).out_BHSK
    torch.testing.assert_close(attend(*arguments, **options), wanted, atol=1e-5, rtol=1e-5)


def test_dropout_is_left_to_others() -> None:
    arguments, _ = make_request_with_sinks(9, 9)
    assert not fuses_sinks(make_request(*arguments, dropout=0.1))


def test_a_trace_holds_operations_that_other_programs_know() -> None:
    arguments, _ = make_request_with_sinks(9, 9)
    scheme, q, k, v, qpos, kpos = arguments
    scheme.requires_grad_(False)
    traced = torch.jit.trace(lambda q, k, v: attend(scheme, q, k, v, qpos, kpos, causal=True), (q.detach(), k, v))
    assert "softmax" in str(traced.graph)
    assert not any(word in str(traced.graph) for word in ("PythonOp", "flash"))


@pytest.mark.parametrize("scheme", [Alibi(4), Window(4, left=9)], ids=repr)
def test_the_mask_that_is_kept_of_a_short_text_follows_positions_and_the_causal_mask(scheme: Any) -> None:
    q, pos = torch.randn(2, 4, 60, 16), torch.arange(60)[None]
    lower = torch.ones(1, 1, 60, 60, dtype=torch.bool).tril()

    def differ() -> float:
        ways = [attend(scheme, q, q, q, pos, pos, causal=True), attend(scheme, q, q, q, pos, pos, lower)]
        exact = attend_reference(scheme, q, q, q, pos, pos, causal=True).out_BHSK
        return max(float((out - exact).abs().max()) for out in ways)

    assert differ() < 1e-5 and differ() < 1e-5
    pos[:, 30:] += 3
    assert differ() < 1e-5


def test_what_a_bias_depends_on_besides_positions_is_never_kept() -> None:
    """The bias of a short text is kept for the next layer: not that of an option that changed, or of these queries."""

    class Gated(DistanceBias):
        def compute_curve(self, distance_R: Tensor) -> Tensor:
            return -distance_R.abs().float()[None].expand(2, -1)

        def bias(self, at: AttentionInputs) -> Tensor:
            return super().bias(at) * at.q.square().mean(-1, keepdim=True)

    (q, k, v), pos, window, gated = torch.randn(3, 1, 2, 8, 4), torch.arange(8)[None], Window(2, left=3), Gated()
    attend(window, q, k, v, pos, pos, causal=True)
    window.left = window.right = 7
    for scheme, queries in ((window, q), (gated, q), (gated, 2 * q)):
        expected = attend_reference(scheme, queries, k, v, pos, pos, causal=True).out_BHSK
        torch.testing.assert_close(attend(scheme, queries, k, v, pos, pos, causal=True), expected)
