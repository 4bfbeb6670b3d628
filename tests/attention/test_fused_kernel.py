"""What the fused kernel of a GPU is not asked for: a bias of another type than 16-bit queries have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clockhands import positions
from clockhands.attention import attend_reference, fused_kernel
from clockhands.attention.request import make_request
from clockhands.schemes import Alibi, RoPE, Scheme


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
    request = make_request(scheme, q, q, q, pos, pos, causal=True)
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
