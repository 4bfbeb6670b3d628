"""When a CPU rotates halves by a loop that LLVM compiles (``rotation_loop.py``), not by PyTorch's operations.

The call that compiles it takes 0.13 to 0.15 s longer than others (processor time of a busy EPYC), and no other waits.
That is done in the call, not in a thread beside it: nothing goes on where a program ends or forks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

__all__ = ["choose_loop"]

Plain = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
LOOP_DTYPES = (torch.float32, torch.float64, torch.bfloat16)
LOOP_AFTER = 1 << 27
"""So many numbers a process rotates by PyTorch's operations before it compiles a loop, which takes as long as they did.
What rotates little never waits for it."""

_rotated = 0
"""How many numbers PyTorch's operations have rotated for want of a loop, up to ``LOOP_AFTER``."""
_compiling = 0
"""How many threads of this process compile a loop now."""
_forked_while_compiling = False
"""Whether this process was forked from one that was compiling: LLVM waits for ever for the other's lock."""


def choose_loop(
    pairs: int, heads: tuple[Tensor, ...], cos: Tensor, sin: Tensor, plain: Plain
) -> Callable[[Tensor, Tensor, Tensor, int], Tensor] | None:
    """Return the loop that rotates halves of these heads; None where it does not suit them, or would not pay yet.

    ``plain``: the rotation by PyTorch's operations, whose bits the loop must have.
    """
    global _rotated
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch._C._get_tracing_state():
        return None  # what watches the operations does not see the loop
    if not all(_suits_loop(x, pairs, (cos, sin)) for x in heads):
        return None
    if _rotated < LOOP_AFTER:
        _rotated += sum(x.numel() for x in heads)
        return None
    return _find_loop(cos.dtype, plain)


def _suits_loop(x: Tensor, pairs: int, tables: tuple[Tensor, ...]) -> bool:
    """Whether plain memory holds heads and tables as the loop reads them, which does not look at bounds."""
    if x.dtype not in LOOP_DTYPES or 2 * pairs > x.shape[-1]:
        return False
    return all(_is_plain(part) for part in (x, *tables)) and all(
        table.dtype == x.dtype
        and table.shape[-1] == x.shape[-1]
        and all(size in (1, whole) for size, whole in zip(table.shape[:3], x.shape[:3], strict=True))
        for table in tables
    )


def _is_plain(x: Tensor) -> bool:
    simple = type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu" and x.layout == torch.strided
    return simple and x.ndim == 4 and x.stride(-1) == 1 and not x.is_neg()


@cache
def _find_loop(dtype: torch.dtype, plain: Plain) -> Callable[[Tensor, Tensor, Tensor, int], Tensor] | None:
    """Return the loop for heads of a dtype; None where it cannot be had or gives other bits.

    Whatever LLVM raises, PyTorch's operations are there. Where these round elsewhere, as without AVX2, the bits would
    change in the middle of a training.
    """
    global _compiling
    if _forked_while_compiling:
        return None
    x = torch.linspace(-3, 3, 2 * 3 * 5 * 70, dtype=torch.float64, device="cpu").sin().view(2, 3, 5, 70).to(dtype)
    angle = torch.linspace(0, 40, 5 * 33, dtype=torch.float64, device="cpu").view(1, 1, 5, 33)
    _compiling += 1
    try:
        from clockhands.schemes.rotary.rotation_loop import rotate_halves_in_loop

        cos, sin, rest = angle.cos(), angle.sin(), torch.ones_like(angle)[..., :4]
        table = torch.cat([cos, cos, rest], -1).to(dtype), torch.cat([-sin, sin, 0 * rest], -1).to(dtype)
        same = torch.equal(rotate_halves_in_loop(x, *table, 33), plain(x, *table, 33, -2))
    except Exception:
        return None
    finally:
        _compiling -= 1
    return rotate_halves_in_loop if same else None


def _note_fork() -> None:
    """Note in a process that was just forked whether a thread, which only its parent has, was compiling."""
    global _compiling, _forked_while_compiling
    _forked_while_compiling, _compiling = _forked_while_compiling or _compiling > 0, 0


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_note_fork)
