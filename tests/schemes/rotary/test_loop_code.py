"""The machine code of the loop: what it reads and writes, number by number, and where it is not made."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from llvmlite import binding

from clockhands.schemes.rotary.loop_code import SIZES, compile_loop
from clockhands.shapes import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.fixture(autouse=True)
def _compiled_anew() -> Iterator[None]:
    compile_loop.cache_clear()
    yield
    compile_loop.cache_clear()


def run(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, pairs: int, width: int) -> None:
    """Rotate rows [N, W] by tables [N, W], the first ``width`` channels of each."""
    strides = [number for tensor in (x, cos, sin, out) for number in (tensor.stride(0), 0, 0)]
    sizes: Any = (ctypes.c_int64 * SIZES)(*strides, 1, 1, pairs, width, 0, len(x))
    compile_loop(x.dtype)(*(tensor.data_ptr() for tensor in (x, cos, sin, out)), sizes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairs", [0, 1, 7, 8, 15, 16, 17, 32, 45])
def test_writes_the_channels_of_the_heads_and_no_others(dtype: torch.dtype, pairs: int) -> None:
    """Angles of a quarter of a turn make (a, b) to (-b, a), exactly; three channels stay, five are not of the head."""
    width = 2 * pairs + 3
    x = torch.arange(2 * (width + 5)).view(2, -1).to(dtype)
    cos, sin, out = torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, -7)
    run(x, cos, sin, out, pairs, width)
    a, b, rest = x[:, :pairs], x[:, pairs : 2 * pairs], x[:, 2 * pairs : width]
    assert torch.equal(out, torch.cat([-b, a, rest, torch.full_like(out[:, width:], -7)], -1))


def test_every_bfloat16_passes_unchanged() -> None:
    """All 65,536 patterns of bits, in blocks and one by one; what is no number stays none."""
    for pairs in (16, 1):
        first = torch.arange(1 << 16).to(torch.int32).to(torch.uint16).view(torch.bfloat16).view(-1, pairs)
        x = torch.cat([first, torch.zeros_like(first)], -1)
        out = torch.empty_like(x)
        run(x, torch.ones_like(x), torch.zeros_like(x), out, pairs, 2 * pairs)
        assert torch.equal(out[:, :pairs].isnan(), first.isnan())
        assert torch.equal(out[:, :pairs].nan_to_num(1.0, 2.0, 3.0), first.nan_to_num(1.0, 2.0, 3.0))


@pytest.mark.parametrize("pairs", [16, 1])
def test_the_second_product_is_added_in_one_fused_step(pairs: int) -> None:
    """(1 + 2⁻¹²)² - 1 is 2⁻¹¹ + 2⁻²⁴; the square alone, rounded to float32, loses the last term."""
    near = torch.tensor(1 + 2.0**-12)
    x = torch.cat([near.expand(1, pairs), torch.ones(1, pairs)], -1)
    # Of the second half: b·cos = -1, rounded, and a·sin = (1 + 2⁻¹²)², not rounded.
    cos, sin, out = torch.full_like(x, -1.0), near.expand(1, 2 * pairs).contiguous(), torch.empty_like(x)
    run(x, cos, sin, out, pairs, 2 * pairs)
    assert torch.equal(out[:, pairs:], torch.full((1, pairs), 2.0**-11 + 2.0**-24))


def test_a_processor_without_a_fused_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would call a function of the C library, and end the process where there is none."""
    features = binding.get_host_cpu_features()
    features["fma"] = False
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: features)
    with pytest.raises(NotImplementedError, match="FMA"):
        compile_loop(torch.float32)
