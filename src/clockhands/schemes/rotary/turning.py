"""Turning pairs of channels by angles: what all rotary schemes share.

Each layout has its own fast form. Neighbours (2c, 2c + 1) are complex numbers as they lie in memory. Halves
(c, c + r/2) are written, swapped and multiplied, into one new tensor; their backward pass is the turn by -θ, which
keeps nothing but the tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.base import KeyPositions, Positions, Scheme
from clockhands.schemes.hands import Memo, working
from clockhands.shapes import Float, Num, Tensor

Layout = Literal["interleaved", "half"]
CosSin = tuple[Float[Tensor, "#B #H S F"], Float[Tensor, "#B #H S F"]]


class Neighbours(NamedTuple):
    """e^{iθ} of every pair, [#B, #H, S, F], complex."""

    cis: Tensor


class Halves(NamedTuple):
    """(cos, cos, 1) and (-sin, sin, 0) over the channels of a head, [#B, #H, S, K]: what does not turn stays."""

    cos: Tensor
    sin: Tensor
    pairs: int


def table(cos: Tensor, sin: Tensor, layout: Layout, width: int, dtype: torch.dtype) -> Neighbours | Halves:
    """What ``apply`` multiplies heads of ``width`` channels and this dtype by."""
    if layout == "interleaved":
        return Neighbours(torch.complex(cos, sin))
    rest = (*cos.shape[:-1], width - 2 * cos.shape[-1])
    full = torch.cat([cos, cos, cos.new_ones(rest)], -1), torch.cat([-sin, sin, sin.new_zeros(rest)], -1)
    return Halves(full[0].to(dtype), full[1].to(dtype), cos.shape[-1])


def apply(x_BHSK: Float[Tensor, "B H S K"], by: Neighbours | Halves) -> Float[Tensor, "B H S K"]:
    """Turn every pair of channels. Neighbours turn in float32 at least, halves in the tensor's own dtype."""
    if isinstance(by, Neighbours):
        return _turn_neighbours(x_BHSK, by.cis)
    if by.cos.requires_grad or torch.compiler.is_compiling():
        return _formula(x_BHSK, *by)
    return cast(Tensor, _TurnHalves.apply(x_BHSK, *by))


def turn(
    x_BHSK: Float[Tensor, "B H S K"],
    cos_BHSF: Float[Tensor, "#B #H S F"],
    sin_BHSF: Float[Tensor, "#B #H S F"],
    layout: Layout,
) -> Float[Tensor, "B H S K"]:
    """Rotate the first 2F channels pair by pair; pairs are (2c, 2c+1) or (c, c+F). The rest passes."""
    return apply(x_BHSK, table(cos_BHSF, sin_BHSF, layout, x_BHSK.shape[-1], x_BHSK.dtype))


def _turn_neighbours(x_BHSK: Tensor, cis_BHSF: Tensor) -> Tensor:
    turned = 2 * cis_BHSF.shape[-1]
    pairs = x_BHSK[..., :turned].to(working(x_BHSK.dtype)).unflatten(-1, (-1, 2))
    if pairs.stride(-1) != 1 or any(stride % 2 for stride in pairs.stride()[:-1]) or pairs.storage_offset() % 2:
        pairs = pairs.contiguous()
    out = torch.view_as_real(torch.view_as_complex(pairs) * cis_BHSF).flatten(-2).to(x_BHSK.dtype)
    return out if turned == x_BHSK.shape[-1] else torch.cat([out, x_BHSK[..., turned:]], dim=-1)


def _formula(x_BHSK: Tensor, cos: Tensor, sin: Tensor, pairs: int) -> Tensor:
    """As it is written in papers, in float32 at least; a compiler makes one loop of it."""
    first, second, rest = slice(0, pairs), slice(pairs, 2 * pairs), slice(2 * pairs, None)
    x, c, s = (tensor.to(working(x_BHSK.dtype)) for tensor in (x_BHSK, cos[..., first], sin[..., second]))
    a, b = x[..., first], x[..., second]
    return torch.cat([a * c - b * s, b * c + a * s, x[..., rest]], dim=-1).to(x_BHSK.dtype)


def _written(x: Tensor, cos: Tensor, sin: Tensor, pairs: int) -> Tensor:
    """x·cos + swapped(x)·sin, with one allocation."""
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    out = x * cos
    for here, there in ((first, second), (second, first)):
        out[..., here].addcmul_(x[..., there], sin[..., here])
    return out


_kernel: Callable[[Tensor, Tensor, Tensor, int], Tensor] = _written


def compile_turning(enabled: bool = True, backend: str = "inductor") -> None:
    """Turn halves by a compiled loop in this process: three times as fast on a CPU, after seconds of compiling.

    It needs what torch.compile needs (a C++ compiler). A model that is compiled whole does not need it.
    """
    global _kernel
    _kernel = torch.compile(_formula, backend=backend, dynamic=True) if enabled else _written


class _TurnHalves(torch.autograd.Function):
    """x·cos + swapped(x)·sin in one new tensor; the gradient turns back."""

    @staticmethod
    def forward(x_BHSK: Tensor, cos: Tensor, sin: Tensor, pairs: int) -> Tensor:
        # Heads that were split off a projection lie as [B, S, H, K]: work in that order, in which memory is dense.
        if not x_BHSK.is_contiguous() and x_BHSK.transpose(1, 2).is_contiguous():
            x, cos, sin = x_BHSK.transpose(1, 2), cos.transpose(1, 2), sin.transpose(1, 2)
            return _kernel(x, cos, sin, pairs).transpose(1, 2)
        return _kernel(x_BHSK, cos, sin, pairs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
        _, cos, sin, ctx.pairs = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return cast(Tensor, _TurnHalves.apply(gradient, cos, -sin, ctx.pairs)), None, None, None


def check_pairs(scheme: str, channels: int, said: str) -> None:
    """Raise ConfigError unless ``channels`` is an even number above 0; ``said`` tells where it comes from."""
    if channels < 2 or channels % 2:
        raise ConfigError(
            [f"{scheme} turns pairs of channels, an even number: {said} is {channels} channels"], "the scheme"
        )


class Rotary(Scheme):
    """Base of the schemes that turn q and k alike. A subclass gives ``waves``: cosines and sines from positions.

    ``memoised``: whether they are kept while the position tensor lives (not where they are learned).
    """

    memoised = True

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout: Layout = layout
        self._memo = Memo()

    def waves(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Cosine and sine of every pair's angle, [#B, #H, S, F]."""
        raise NotImplementedError(f"{type(self).__name__} must give its angles")

    def turned(self, x_BHSK: Float[Tensor, "B H S K"], pos: Num[Tensor, "B ..."]) -> Float[Tensor, "B H S K"]:
        """The heads turned to their positions; all layers that pass this very position tensor share one table."""
        width, dtype = x_BHSK.shape[-1], x_BHSK.dtype

        def compute() -> Neighbours | Halves:
            return table(*self.waves(pos, working(dtype)), self.layout, width, dtype)

        return apply(x_BHSK, self._memo(pos, (dtype, width), compute) if self.memoised else compute())

    def rotate(
        self,
        q_BHSK: Float[Tensor, "B H S K"],
        k_BHTK: Float[Tensor, "B H T K"],
        qpos_BS: Positions,
        kpos_BT: KeyPositions,
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H T K"]]:
        return self.turned(q_BHSK, qpos_BS), self.turned(k_BHTK, kpos_BT)


def with_heads(cos: Tensor, sin: Tensor) -> CosSin:
    """[B, S, F] gains a head axis; [B, H, S, F] has one."""
    return (cos, sin) if cos.dim() == 4 else (cos[:, None], sin[:, None])
