"""Refusal of what is not positions, or of what a table does not hold; whether their numbers may be read."""

from __future__ import annotations

from typing import Any

import torch

from clockhands.errors import PositionError, show_value
from clockhands.shapes import Num, Tensor

_MODES, _count_modes = torch._C._TorchDispatchModeKey, torch._C._len_torch_dispatch_stack
_get_tracing_state, _peek_transforms = torch._C._get_tracing_state, torch._C._functorch.peek_interpreter_stack
MAKE = "make them with clockhands.positions, as in count_up(batch, tokens)"


def is_traced() -> bool:
    """Return whether a program follows what is computed: then no number in a tensor may decide, nor a size.

    It is torch.compile, torch.export, torch.jit.trace, torch.func, make_fx, or a ``FakeTensorMode``.
    """
    return (
        torch.compiler.is_compiling()
        or _get_tracing_state() is not None
        or _peek_transforms() is not None
        or (_count_modes() > 0 and any(torch._C._get_dispatch_mode(mode) for mode in (_MODES.FAKE, _MODES.PROXY)))
    )


def can_read(x: Tensor) -> bool:
    """Return whether a tensor has numbers that may decide: some, not of shapes alone, and nothing follows them."""
    return not (is_traced() or x.is_meta) and x.numel() > 0


def check_position_tensor(pos: Any, what: str) -> Tensor:
    """Return positions as they are, or [S] as [1, S], and small integers as int64, in which differences fit.

    Raises PositionError for what is no tensor of numbers, for floats of 16 bits, and for NaN and infinity.
    """
    if not isinstance(pos, Tensor):
        raise PositionError(f"{what} must be a tensor [batch, tokens], and this is {show_value(pos)}; {MAKE}")
    if pos.dim() not in (1, 2, 3, 4) or pos.dtype == torch.bool or pos.is_complex():
        kind = f"{list(pos.shape)} of {pos.dtype}"
        raise PositionError(f"{what} must be numbers [batch, tokens], and these are {kind}; {MAKE}")
    if pos.dtype in (torch.bfloat16, torch.float16):
        most = 256 if pos.dtype == torch.bfloat16 else 2048
        raise PositionError(
            f"{what} are {pos.dtype}, which has not every whole number above {most}; give int64, or float32 and more"
        )
    if not pos.is_floating_point():
        pos = pos if pos.dtype in (torch.int64, torch.int32) else pos.long()
    elif pos.device.type == "cpu" and pos.dim() < 4 and can_read(pos) and not bool(pos.isfinite().all()):
        raise PositionError(f"{what} hold NaN or infinity; every token needs a finite one (mask the others away)")
    return pos[None] if pos.dim() == 1 else pos


def check_encoded_positions(scheme: Any, pos: Any) -> Tensor:
    """Return positions for ``encode``, [S] as [1, S]. Raises PositionError for embeddings in their place."""
    pos = check_position_tensor(pos, f"the positions of {type(scheme).__name__}.encode")
    if pos.dim() == 3 and pos.is_floating_point() and pos.shape[-1] > 4:
        promise = scheme.declares
        if promise.axes is not None and pos.shape[-1] != promise.axes and not promise.more_axes:
            raise PositionError(
                f"{type(scheme).__name__}.encode takes positions [batch, tokens], and {list(pos.shape)} looks like "
                f"embeddings; write x + scheme.encode(pos), or Positioning(scheme).embed(x, pos)"
            )
    return pos


def check_length(pos: Num[Tensor, "*any"], maximum: int, scheme: str, option: str = "max_length") -> None:
    """Raise PositionError if a position is negative or past the table. Skipped while tracing, and for shapes alone."""
    if not can_read(pos):
        return
    low, high = int(pos.min()), int(pos.max())
    if low < 0 or high >= maximum:
        bad = low if low < 0 else high
        raise PositionError(
            f"position {bad} is outside the {maximum} positions of {scheme}; shorten the text, raise {option}, "
            f"or choose a scheme that extrapolates"
        )


def read_index(
    pos: Num[Tensor, "*any"], maximum: int, scheme: str, beyond: str = "raise", option: str = "max_length"
) -> Num[Tensor, "*any"]:
    """Return the rows of positions in a table of so many; with ``beyond`` "clamp", later ones get the last.

    Raises PositionError for real-valued positions and, else, for those outside the table.
    """
    check_integer(pos, scheme)
    if beyond == "clamp":
        return pos.clamp(0, maximum - 1)
    check_length(pos, maximum, scheme, option)
    return pos


def check_counts(pos: Num[Tensor, "*any"], scheme: str) -> None:
    """Raise PositionError for a position below 0 where it says how many tokens came before."""
    if can_read(pos) and float(pos.min()) < 0:
        raise PositionError(
            f"{scheme} counts tokens by their positions, and position {float(pos.min()):g} is below 0; count from 0"
        )


def check_integer(pos: Num[Tensor, "*any"], scheme: str) -> None:
    """Raise PositionError for real-valued positions, which a table cannot hold."""
    if pos.is_floating_point():
        raise PositionError(
            f"{scheme} looks positions up in a table, and these are real numbers ({pos.dtype}); "
            f"choose a scheme that declares real_valued, or a transform that keeps integers"
        )
