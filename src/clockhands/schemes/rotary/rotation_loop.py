"""The rotation of halves as one loop over memory, which numba compiles: each number is read and written once.

Without it PyTorch goes three times over rows of half a head. The loop rounds where PyTorch does on processors with AVX2
or AVX-512: the product with the cosine is rounded, then the other product is added in one fused step; the choice in
``loop_choice.py`` compares the two first. Nothing is checked here: tables must fit the heads, or memory is overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, cast

import numba
import torch
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from clockhands.shapes import Float, Tensor

__all__ = ["rotate_halves_in_loop"]

FEWEST_PER_THREAD = 1 << 17
"""Numbers that are worth handing to another thread."""

_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


@intrinsic
def _add_product(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a·b + c, rounded once."""
    return a(a, b, c), lambda _context, builder, _signature, values: builder.fma(*values)


@intrinsic
def _widen(context: Any, bits: Any) -> Any:
    """Return a bfloat16, given as its 16 bits, as a float32."""

    def build(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.bitcast(builder.shl(builder.zext(values[0], _I32), _I32(16)), _F32)

    return types.float32(types.uint16), build


@intrinsic
def _narrow(context: Any, number: Any) -> Any:
    """Return the 16 bits of the bfloat16 nearest to a float32, the even one of two that are equally near."""

    def build(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        bits = builder.bitcast(values[0], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _I32(0x7FFF))), _I32(16))
        # Adding to the bits of a NaN could make an infinity or a zero of it.
        is_nan = builder.fcmp_unordered("uno", values[0], values[0])
        return builder.trunc(builder.select(is_nan, _I32(0x7FC0), rounded), _I16)

    return types.uint16(types.float32), build


def _compile(loop: Callable[..., None]) -> Callable[..., None]:
    """Compile a loop at its first call. It is not kept on disk, where a damaged file would end every later rotation."""
    return cast(Callable[..., None], numba.njit(nogil=True, error_model="numpy")(loop))


# All tensors are given flat, each with three strides; the slices tell the compiler that channels are neighbours.
@_compile
def _rotate_rows(
    x: Any, sx: Any, cos: Any, sc: Any, sin: Any, ss: Any, out: Any, so: Any, sizes: Any, rows: Any
) -> None:
    second, third, pairs, width = sizes
    for row in range(rows[0], rows[1]):
        i, j = row // second, row % second
        for k in range(third):
            at, to = i * sx[0] + j * sx[1] + k * sx[2], i * so[0] + j * so[1] + k * so[2]
            c, s = i * sc[0] + j * sc[1] + k * sc[2], i * ss[0] + j * ss[1] + k * ss[2] + pairs
            a, b, to_a, to_b = x[at : at + pairs], x[at + pairs : at + 2 * pairs], out[to:], out[to + pairs :]
            cosine, sine = cos[c : c + pairs], sin[s : s + pairs]
            for p in range(pairs):
                to_a[p] = _add_product(-b[p], sine[p], a[p] * cosine[p])
                to_b[p] = _add_product(a[p], sine[p], b[p] * cosine[p])
            for p in range(2 * pairs, width):
                out[to + p] = x[at + p]


@_compile
def _rotate_bfloat16_rows(
    x: Any, sx: Any, cos: Any, sc: Any, sin: Any, ss: Any, out: Any, so: Any, sizes: Any, rows: Any
) -> None:
    second, third, pairs, width = sizes
    for row in range(rows[0], rows[1]):
        i, j = row // second, row % second
        for k in range(third):
            at, to = i * sx[0] + j * sx[1] + k * sx[2], i * so[0] + j * so[1] + k * so[2]
            c, s = i * sc[0] + j * sc[1] + k * sc[2], i * ss[0] + j * ss[1] + k * ss[2] + pairs
            a, b, to_a, to_b = x[at : at + pairs], x[at + pairs : at + 2 * pairs], out[to:], out[to + pairs :]
            cosine, sine = cos[c : c + pairs], sin[s : s + pairs]
            for p in range(pairs):
                first, other, cosine_p, sine_p = _widen(a[p]), _widen(b[p]), _widen(cosine[p]), _widen(sine[p])
                to_a[p] = _narrow(_add_product(-other, sine_p, _widen(_narrow(first * cosine_p))))
                to_b[p] = _narrow(_add_product(first, sine_p, _widen(_narrow(other * cosine_p))))
            for p in range(2 * pairs, width):
                out[to + p] = x[at + p]


def rotate_halves_in_loop(
    x: Float[Tensor, "B H S K"], cos: Float[Tensor, "#B #H S K"], sin: Float[Tensor, "#B #H S K"], pairs: int
) -> Float[Tensor, "B H S K"]:
    """Rotate channels c and c + ``pairs`` of each head; those from 2·``pairs`` on stay as they are.

    All are of one dtype, float32, float64 or bfloat16, on the CPU, and the channels of each are neighbours in memory.
    All may also lie as [B, S, H, K].

    Args:
        x: the heads, in any order of memory.
        cos, sin: as in a ``HalvesTable``; of the sines the second half is read.
        pairs: how many channels rotate, by two.
    """
    loop = _rotate_bfloat16_rows if x.dtype == torch.bfloat16 else _rotate_rows
    out = torch.empty_like(x)
    if out.stride(-1) != 1:  # of windows that overlap PyTorch makes another order of memory
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    first, second, third, width = x.shape
    tensors = [part for tensor in (x, cos, sin, out) for part in (_flatten(tensor), _take_strides(tensor))]
    sizes, rows = (second, third, pairs, width), first * second
    threads = min(torch.get_num_threads(), x.numel() // FEWEST_PER_THREAD, rows)
    if threads < 2:
        loop(*tensors, sizes, (0, rows))
        return out
    ends = [rows * part // threads for part in range(threads + 1)]
    try:
        list(_get_pool().map(lambda part: loop(*tensors, sizes, part), pairwise(ends)))
    except RuntimeError:  # the interpreter ends, and starts no thread any more
        loop(*tensors, sizes, (0, rows))
    return out


def _flatten(x: Tensor) -> Any:
    """Return the memory from the first to the last number of a tensor as an array; bfloat16 as its 16 bits."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    flat = x.detach().as_strided((reach,), (1,))
    return (flat.view(torch.uint16) if x.dtype == torch.bfloat16 else flat).numpy()


def _take_strides(x: Tensor) -> tuple[int, int, int]:
    """Return the strides of the first three axes; that of an axis of length 1 is 0, so that it is broadcast."""
    first, second, third = (
        0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True)
    )
    return first, second, third


_pool: ThreadPoolExecutor | None = None


def _get_pool() -> ThreadPoolExecutor:
    """Return the threads of this process."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_name_prefix="rotation")
    return _pool


def _forget_pool() -> None:
    """Forget the threads, which a process that was forked does not have."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget_pool)
