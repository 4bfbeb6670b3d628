"""The rotation of halves as one loop over memory, which LLVM compiles: each number is read and written once.

Without it PyTorch goes three times over rows of half a head. The loop rounds where PyTorch does on processors with AVX2
or AVX-512: the product with the cosine is rounded, then the other product is added in one fused step; the choice in
``loop_choice.py`` compares the two first. Nothing is checked here: tables must fit the heads, or memory is overwritten.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

from clockhands.schemes.rotary.loop_code import SIZES, compile_loop
from clockhands.shapes import Float, Tensor

__all__ = ["rotate_halves_in_loop"]

FEWEST_PER_THREAD = 1 << 17
"""Numbers that are worth handing to another thread."""
_Sizes = ctypes.c_int64 * SIZES


def rotate_halves_in_loop(
    x: Float[Tensor, "B H S K"], cos: Float[Tensor, "#B #H #S K"], sin: Float[Tensor, "#B #H #S K"], pairs: int
) -> Float[Tensor, "B H S K"]:
    """Rotate channels c and c + ``pairs`` of each head; those from 2·``pairs`` on stay as they are.

    All are of one dtype, float32, float64 or bfloat16, on the CPU, and the channels of each are neighbours in memory.
    All may also lie as [B, S, H, K].

    Args:
        x: the heads, in any order of memory.
        cos, sin: as in a ``HalvesTable``; of the sines the second half is read.
        pairs: how many channels rotate, by two.
    """
    code, out = compile_loop(x.dtype), torch.empty_like(x)
    if out.stride(-1) != 1:  # of windows that overlap PyTorch makes another order of memory
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    first, second, third, width = x.shape
    tensors = (x, cos, sin, out)
    strides = [stride for tensor in tensors for stride in _take_strides(tensor)]
    addresses, rows = [tensor.data_ptr() for tensor in tensors], first * second

    def rotate_rows(ends: tuple[int, int]) -> None:
        code(*addresses, _Sizes(*strides, second, third, pairs, width, *ends))

    threads = min(torch.get_num_threads(), x.numel() // FEWEST_PER_THREAD, rows)
    if threads < 2:
        rotate_rows((0, rows))
        return out
    ends = [rows * part // threads for part in range(threads + 1)]
    try:
        list(_get_pool().map(rotate_rows, pairwise(ends)))
    except RuntimeError:  # the interpreter ends, and starts no thread any more
        rotate_rows((0, rows))
    return out


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
