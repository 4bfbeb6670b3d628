"""How pairs of channels are rotated: one new tensor, few passes, blocks that stay in a processor's cache.

``rotate_by_formula`` is what papers write: for compilers, which make one loop of it, and for learned angles. Without
a compiler neighbours (2c, 2c + 1) are complex numbers as they lie in memory, multiplied in float32 at least. Halves
(c, c + r/2) are multiplied, and each half has the other's product added to it, in their own dtype. The backward pass
is the rotation by -θ, which keeps nothing but the tables. Queries and keys of the same positions are rotated in one
call: a compiler makes one loop for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, cast

import torch

from clockhands.schemes.frequencies import choose_working_dtype
from clockhands.shapes import Float, Tensor

__all__ = [
    "BLOCK",
    "FormulaTable",
    "HalvesTable",
    "Layout",
    "NeighbourTable",
    "RotationTable",
    "compile_rotation",
    "make_table",
    "rotate_by_formula",
    "rotate_halves_by_formula",
    "rotate_heads",
]

Layout = Literal["interleaved", "half"]
BLOCK = 1 << 19
"""Bytes that one thread rotates at a time, which its cache holds with those that they become."""


class FormulaTable(NamedTuple):
    """Cosine and sine of every pair, [#B, #H, S, F], for the formula as it is written: compilers and learned angles."""

    cos: Tensor
    sin: Tensor
    layout: Layout


class NeighbourTable(NamedTuple):
    """e^{iθ} of every pair, [#B, #H, S, F], complex, for the layout ``interleaved``."""

    cis: Tensor


class HalvesTable(NamedTuple):
    """(cos, cos, 1) and (-sin, sin, 0) over the channels of a head, [#B, #H, S, K].

    The 1 and the 0 leave the channels that do not rotate as they are.
    """

    cos: Tensor
    sin: Tensor
    pairs: int


RotationTable = FormulaTable | NeighbourTable | HalvesTable


def make_table(cos: Tensor, sin: Tensor, layout: Layout, width: int, dtype: torch.dtype) -> RotationTable:
    """Make what ``rotate_heads`` multiplies heads of ``width`` channels and this dtype by."""
    if torch.compiler.is_compiling() or cos.requires_grad:
        return FormulaTable(cos, sin, layout)
    if layout == "interleaved":
        return NeighbourTable(torch.complex(cos, sin))
    rest = (*cos.shape[:-1], width - 2 * cos.shape[-1])
    full = torch.cat([cos, cos, cos.new_ones(rest)], -1), torch.cat([-sin, sin, sin.new_zeros(rest)], -1)
    return HalvesTable(full[0].to(dtype), full[1].to(dtype), int(cos.shape[-1]))


def rotate_heads(table: RotationTable, *heads_BHSK: Float[Tensor, "B H S K"]) -> tuple[Float[Tensor, "B H S K"], ...]:
    """Rotate every pair of channels of each tensor of heads; channels beyond the table's pairs stay as they are."""
    if isinstance(table, FormulaTable):
        return tuple(rotate_by_formula(x, *table) for x in heads_BHSK)
    tables = (table.cis, None, table.cis.shape[-1]) if isinstance(table, NeighbourTable) else table
    return cast(tuple[Tensor, ...], _Rotate.apply(*tables, *heads_BHSK))


def rotate_by_formula(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Rotate pairs as papers write it, in float32 at least: (a·cos - b·sin, b·cos + a·sin).

    Differentiable in the angles, and a compiler makes one loop of it.
    """
    dtype, rotated = choose_working_dtype(x.dtype), 2 * cos.shape[-1]
    pairs = x[..., :rotated].to(dtype).unflatten(-1, (2, -1) if layout == "half" else (-1, 2))
    axis = -2 if layout == "half" else -1
    a, b = pairs.unbind(axis)
    out = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=axis).flatten(-2).to(x.dtype)
    return out if rotated == x.shape[-1] else torch.cat([out, x[..., rotated:]], dim=-1)


def rotate_halves_by_formula(cos: Tensor, sin: Tensor, pairs: int, *heads: Tensor) -> tuple[Tensor, ...]:
    """Rotate by the formula with a ``HalvesTable``: what ``compile_rotation`` compiles."""
    cos, sin = cos[..., :pairs], sin[..., pairs : 2 * pairs]
    return tuple(rotate_by_formula(x, cos, sin, "half") for x in heads)


_compiled: Callable[..., tuple[Tensor, ...]] | None = None


def compile_rotation(enabled: bool = True, backend: str = "inductor") -> None:
    """Choose whether this process rotates halves by a loop that torch.compile makes, which takes seconds once.

    It needs what torch.compile needs (on a CPU a C++ compiler). A model that is compiled whole does not need it.
    """
    global _compiled
    _compiled = torch.compile(rotate_halves_by_formula, backend=backend, dynamic=True) if enabled else None


def _blocks(axis: int, dtype: torch.dtype, x: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split x and its like along the positions into parts that, computed in ``dtype``, a processor's cache holds."""
    rows, size = x.shape[axis], x.numel() * dtype.itemsize
    if x.device.type == "cpu" and size > BLOCK:
        rows = max(1, BLOCK * torch.get_num_threads() * rows // size)
    return zip(*(tensor.split(max(rows, 1), axis) for tensor in (x, *others)), strict=True)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor, pairs: int, axis: int) -> Tensor:
    out = torch.empty_like(x)
    # Halves are taken of the whole tensors: in each block their views would take as long as the products.
    halves = [tensor.narrow(-1, start, pairs) for start in (0, pairs) for tensor in (x, sin, out)]
    for part, c, to, a, sin_a, to_a, b, sin_b, to_b in _blocks(axis, x.dtype, x, cos, out, *halves):
        torch.mul(part, c, out=to)
        to_a.addcmul_(b, sin_a)
        to_b.addcmul_(a, sin_b)
    return out


def _rotate_neighbours(x: Tensor, cis: Tensor, axis: int) -> Tensor:
    """Multiply complex numbers, straight into the new tensor where it has their dtype, else through a float32 block."""
    out, rotated = torch.empty_like(x), 2 * cis.shape[-1]
    out[..., rotated:] = x[..., rotated:]
    source, target = x[..., :rotated], out[..., :rotated]
    if choose_working_dtype(x.dtype) == x.dtype and _are_complex(source) and _are_complex(target):
        torch.mul(_complex(source), cis, out=_complex(target))
        return out
    room = torch.empty(0, dtype=choose_working_dtype(x.dtype), device=x.device)
    for part, c, to in _blocks(axis, room.dtype, source, cis, target):
        room.resize_(part.shape).copy_(part)
        _complex(room).mul_(c)
        to.copy_(room)
    return out


def _complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _are_complex(x: Tensor) -> bool:
    """Whether neighbours lie in memory so that they can be read as complex numbers."""
    even = all(stride % 2 == 0 for stride in x.stride()[:-1])
    return x.stride(-1) == 1 and even and x.storage_offset() % 2 == 0


def _rotate(table: Tensor, sin: Tensor | None, pairs: int, heads: tuple[Tensor, ...], axis: int) -> tuple[Tensor, ...]:
    if sin is None:
        return tuple(_rotate_neighbours(x, table, axis) for x in heads)
    if _compiled:
        return _compiled(table, sin, pairs, *heads)
    return tuple(_rotate_halves(x, table, sin, pairs, axis) for x in heads)


class _Rotate(torch.autograd.Function):
    """The rotation by a ``NeighbourTable`` (its table and None) or a ``HalvesTable``; the gradient rotates back."""

    @staticmethod
    def forward(table: Tensor, sin: Tensor | None, pairs: int, *heads_BHSK: Tensor) -> tuple[Tensor, ...]:
        # Heads that were split off a projection lie as [B, S, H, K]: work in the order of memory.
        if any(x.stride(-3) >= x.stride(-2) for x in heads_BHSK):
            return _rotate(table, sin, pairs, heads_BHSK, -2)
        first, second = table.transpose(-3, -2), None if sin is None else sin.transpose(-3, -2)
        rotated = _rotate(first, second, pairs, tuple(x.transpose(-3, -2) for x in heads_BHSK), -3)
        return tuple(x.transpose(-3, -2) for x in rotated)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        table, sin, ctx.pairs, *_ = inputs
        ctx.save_for_backward(table, sin)
        ctx.save_for_forward(table, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        table, sin = ctx.saved_tensors
        back = (table.conj().resolve_conj(), None) if sin is None else (table, -sin)
        return None, None, None, *cast(tuple[Tensor, ...], _Rotate.apply(*back, ctx.pairs, *gradients))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        return cast(tuple[Tensor, ...], _Rotate.apply(*ctx.saved_tensors, ctx.pairs, *tangents[3:]))

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], table: Tensor, sin: Tensor | None, pairs: int, *heads: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Add one axis in front; tables that do not have it are broadcast over it."""
        tables = [
            part if part is None or axis is None else part.movedim(axis, 0)
            for part, axis in zip((table, sin), in_dims[:2], strict=True)
        ]
        front = [
            x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
            for x, axis in zip(heads, in_dims[3:], strict=True)
        ]
        return cast(tuple[Tensor, ...], _Rotate.apply(*tables, pairs, *front)), (0,) * len(heads)
