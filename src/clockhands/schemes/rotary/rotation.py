"""How pairs of channels are rotated: one new tensor, few passes, blocks that stay in a processor's cache.

From the hook down to the arithmetic::

    Rotary.rotate(q, k, qpos, kpos)          # the hook
    Rotary._table_for(pos, ...)              # what heads at these positions are multiplied by, kept with the positions
    apply_rotation(table, q, k)              # rotate heads that stand at the positions of one table
    _Rotate                                  # the multiplication of all pairs, and its gradient

``_rotate_by_formula`` is what papers write: for compilers, which make one loop of it, and for learned angles. Without
a compiler ``interleaved`` pairs (2c, 2c + 1) are complex numbers as they lie in memory, multiplied in float32 at least.
Of ``half`` pairs (c, c + r/2) each half is multiplied, and has the other's product added to it, in their own dtype. The
backward pass is the rotation by -θ, which keeps nothing but the tables. Queries and keys of the same positions are
rotated in one call: a compiler makes one loop for both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, cast

import torch

from clockhands.errors import UsageError, refuse
from clockhands.schemes.frequencies import Layout as Layout
from clockhands.schemes.frequencies import choose_working_dtype
from clockhands.schemes.scheme import KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme
from clockhands.shapes import Float, Tensor

_count_modes, _peek_transforms = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
BLOCK = 1 << 19
"""Bytes of input that one thread rotates at a time, so that input and output fit its cache."""
CosSin = tuple[Float[Tensor, "#B #H S F"], Float[Tensor, "#B #H S F"]]


class Memo:
    """Keeps what was computed last from a position tensor, as long as that very tensor lives unchanged.

    All layers of a forward pass share one position tensor, so its cosines and sines are computed once. The key is the
    tensor's identity and version, never its shape (trap 12). Nothing is kept for positions that carry a gradient, in
    inference mode (its tensors have no version and cannot serve a later backward pass), or while torch.compile or
    make_fx traces.

    Args:
        slots: for how many tensors something is kept; with 0 it is computed anew every time.
    """

    def __init__(self, slots: int = 2) -> None:
        self._kept: dict[int, tuple[weakref.ref[Tensor], int, Any, Any]] = {}
        self._slots = slots

    def __call__(self, pos: Tensor, key: tuple[Any, ...], compute: Callable[..., Any]) -> Any:
        """Return what is kept for this tensor and ``key``, or else ``compute(pos, *key)``, and keep that."""
        if (
            not self._slots
            or torch.compiler.is_compiling()
            or _peek_transforms() is not None
            or _count_modes() > 0  # as fake tensors and make_fx have
            or pos.requires_grad
            or torch.is_inference_mode_enabled()
            or pos.is_inference()
        ):
            return compute(pos, *key)
        kept = self._kept.get(id(pos))
        if kept is not None and kept[0]() is pos and kept[1] == pos._version and kept[2] == key:
            return kept[3]
        value = compute(pos, *key)
        self._kept.pop(id(pos), None)
        while len(self._kept) >= self._slots:
            self._kept.pop(next(iter(self._kept)))
        self._kept[id(pos)] = (weakref.ref(pos), pos._version, key, value)
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Memo:
        return Memo(self._slots)

    def __reduce__(self) -> tuple[type[Memo], tuple[int]]:
        return Memo, (self._slots,)


class _FormulaTable(NamedTuple):
    """Cosine and sine of every pair, [#B, #H, S, F], for the formula as it is written: compilers and learned angles."""

    cos: Tensor
    sin: Tensor
    layout: Layout


class _InterleavedTable(NamedTuple):
    """e^{iθ} of every pair, [#B, #H, S, F], complex, for the layout ``interleaved``."""

    cis: Tensor


class _HalfTable(NamedTuple):
    """(cos, cos, 1) and (-sin, sin, 0) over the channels of a head, [#B, #H, S, K].

    The 1 and the 0 leave the channels that do not rotate as they are.
    """

    cos: Tensor
    sin: Tensor
    pairs: int


RotationTable = _FormulaTable | _InterleavedTable | _HalfTable


class Rotary(Scheme):
    """Base of the schemes that rotate q and k alike. A subclass gives ``angles``, or their cosines and sines."""

    memoised: bool = True
    """Whether tables are kept while the position tensor lives; not where angles are learned, and change."""
    elementwise: ClassVar[tuple[str, ...]] = ("rotate", "compute_cos_sin", "angles")
    reads_both_sides: bool = False
    """Whether the angles of queries depend on the positions of keys too, and the other way round."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout: Layout = layout
        self._memo = Memo(2 if self.memoised else 0)

    def angles(self, pos: QueryPositions) -> Float[Tensor, "*any"]:
        """Return every pair's angle, in float64: [#B, S, F], or [#B, H, S, F] where heads have their own."""
        raise NotImplementedError(f"{type(self).__name__} must give its angles")

    def compute_cos_sin(self, pos: QueryPositions, dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of every pair's angle: [#B, #H, S, F], in ``dtype``."""
        angle = self.angles(pos)
        return add_head_axis(angle.cos().to(dtype), angle.sin().to(dtype))

    def compute_cos_sin_beside(self, pos: QueryPositions, other: KeyPositions, dtype: torch.dtype) -> CosSin:
        """Return the same beside the positions of the other side, which matter where ``reads_both_sides``."""
        return self.compute_cos_sin(pos, dtype)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        qkey, kkey = (q_BHSK.dtype, q_BHSK.shape[-1]), (k_BHTK.dtype, k_BHTK.shape[-1])
        if qpos is kpos and qkey == kkey:
            table = self._memo(qpos, qkey, self._table_for)
            if isinstance(table, _HalfTable):  # what most models have, straight to the multiplication
                return cast(Rotated, _Rotate.apply(*table, q_BHSK, k_BHTK))
            q_BHSK, k_BHTK = apply_rotation(table, q_BHSK, k_BHTK)
            return q_BHSK, k_BHTK
        if self.reads_both_sides and qpos is not kpos:
            # The memo knows one side alone.
            qtable, ktable = self._table_for(qpos, *qkey, kpos), self._table_for(kpos, *kkey, qpos)
        else:
            qtable, ktable = self._memo(qpos, qkey, self._table_for), self._memo(kpos, kkey, self._table_for)
        return apply_rotation(qtable, q_BHSK)[0], apply_rotation(ktable, k_BHTK)[0]

    def _table_for(
        self, pos: QueryPositions, dtype: torch.dtype, width: int, other: KeyPositions | None = None
    ) -> RotationTable:
        """Return what heads of ``width`` channels at these positions are multiplied by."""
        # cos and sin are float32 at least: bfloat16 holds no more than 3 digits of them.
        exact = torch.promote_types(dtype, torch.float32)
        if other is None:
            cos, sin = self.compute_cos_sin(pos, exact)
        else:
            cos, sin = self.compute_cos_sin_beside(pos, other, exact)
        return make_table(cos, sin, self.layout, width, dtype)


def make_table(cos: Tensor, sin: Tensor, layout: Layout, width: int, dtype: torch.dtype) -> RotationTable:
    """Make what ``apply_rotation`` multiplies heads of ``width`` channels and this dtype by.

    Raises UsageError for heads that have fewer channels than are to be rotated.
    """
    channels = 2 * cos.shape[-1]
    if channels > width:
        raise UsageError(
            f"{channels} channels of each head are to be rotated, and these heads have {width}; build the scheme with "
            f"head_dim={width}"
        )
    if cos.requires_grad or torch.compiler.is_compiling() or _count_modes() > 0:
        return _FormulaTable(cos, sin, layout)
    if layout == "interleaved":
        return _InterleavedTable(torch.complex(cos, sin))
    rest = (*cos.shape[:-1], width - channels)
    # (a, b) · (cos, cos) + (b, a) · (-sin, sin) is the rotation of both halves at once.
    full_cos = torch.cat([cos, cos, cos.new_ones(rest)], -1)
    full_sin = torch.cat([-sin, sin, sin.new_zeros(rest)], -1)
    return _HalfTable(full_cos.to(dtype), full_sin.to(dtype), int(cos.shape[-1]))


def apply_rotation(
    table: RotationTable, *heads_BHSK: Float[Tensor, "B _H S K"]
) -> tuple[Float[Tensor, "B _H S K"], ...]:
    """Rotate every pair of channels of each tensor of heads; channels beyond the table's pairs stay as they are."""
    if isinstance(table, _FormulaTable):
        return tuple(_rotate_by_formula(x, *table) for x in heads_BHSK)
    if isinstance(table, _InterleavedTable):
        return cast(tuple[Tensor, ...], _Rotate.apply(table.cis, None, table.cis.shape[-1], *heads_BHSK))
    return cast(tuple[Tensor, ...], _Rotate.apply(*table, *heads_BHSK))


def rotate_pairs(
    x_BHSK: Float[Tensor, "B H S K"],
    cos_BHSF: Float[Tensor, "#B #H S F"],
    sin_BHSF: Float[Tensor, "#B #H S F"],
    layout: Layout,
) -> Float[Tensor, "B H S K"]:
    """Rotate the first 2F channels pair by pair; pairs are (2c, 2c+1) or (c, c+F). The other channels stay."""
    return apply_rotation(make_table(cos_BHSF, sin_BHSF, layout, x_BHSK.shape[-1], x_BHSK.dtype), x_BHSK)[0]


def _rotate_by_formula(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Rotate pairs as papers write it, in float32 at least: (a·cos - b·sin, b·cos + a·sin).

    Differentiable in the angles, and a compiler makes one loop of it.
    """
    dtype, rotated = choose_working_dtype(x.dtype), 2 * cos.shape[-1]
    pairs = x[..., :rotated].to(dtype).unflatten(-1, (2, -1) if layout == "half" else (-1, 2))
    axis = -2 if layout == "half" else -1
    a, b = pairs.unbind(axis)
    out = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=axis).flatten(-2).to(x.dtype)
    return out if rotated == x.shape[-1] else torch.cat([out, x[..., rotated:]], dim=-1)


def _rotate_half_by_formula(cos: Tensor, sin: Tensor, pairs: int, *heads: Tensor) -> tuple[Tensor, ...]:
    """Rotate by the formula with a ``_HalfTable``: what ``compile_rotation`` compiles."""
    cos, sin = cos[..., :pairs], sin[..., pairs : 2 * pairs]
    return tuple(_rotate_by_formula(x, cos, sin, "half") for x in heads)


_compiled: Callable[..., tuple[Tensor, ...]] | None = None


def compile_rotation(enabled: bool = True, backend: str = "inductor") -> None:
    """Choose whether this process rotates ``half`` pairs by a loop that torch.compile makes, which takes seconds once.

    It needs what torch.compile needs (on a CPU a C++ compiler). A model that is compiled whole does not need it.
    """
    global _compiled
    _compiled = torch.compile(_rotate_half_by_formula, backend=backend, dynamic=True) if enabled else None


def _multiply_half(x: Tensor, cos: Tensor, sin: Tensor, pairs: int, axis: int) -> Tensor:
    """Compute x·(cos, cos, 1) + (b, a)·(-sin, sin) of the halves a and b of x, block by block along an axis."""
    out = torch.empty_like(x)
    # Halves are taken of the whole tensors: in each block their views would take as long as the products.
    a, b = x.narrow(-1, 0, pairs), x.narrow(-1, pairs, pairs)
    out_a, out_b = out.narrow(-1, 0, pairs), out.narrow(-1, pairs, pairs)
    sin_a, sin_b = sin.narrow(-1, 0, pairs), sin.narrow(-1, pairs, pairs)
    blocks: list[tuple[Tensor, ...]] = [(x, cos, out, a, b, out_a, out_b, sin_a, sin_b)]
    if x.numel() * x.element_size() > BLOCK:
        blocks = list(_blocks(axis, x.dtype, *blocks[0]))
    for x, cos, out_part, a, b, out_a, out_b, sin_a, sin_b in blocks:
        torch.mul(x, cos, out=out_part)
        out_a.addcmul_(b, sin_a)
        out_b.addcmul_(a, sin_b)
    return out


def _multiply_interleaved(x: Tensor, cis: Tensor, axis: int) -> Tensor:
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


def _blocks(axis: int, dtype: torch.dtype, x: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split x and its like along the positions into parts that, computed in ``dtype``, a processor's cache holds."""
    rows, size = x.shape[axis], x.numel() * dtype.itemsize
    if x.device.type == "cpu" and size > BLOCK:
        rows = max(1, BLOCK * torch.get_num_threads() * rows // size)
    return zip(*(tensor.split(max(rows, 1), axis) for tensor in (x, *others)), strict=True)


def _complex(x: Tensor) -> Tensor:
    """Read interleaved pairs as complex numbers, in place."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _are_complex(x: Tensor) -> bool:
    """Whether interleaved pairs lie in memory so that they can be read as complex numbers."""
    even = all(stride % 2 == 0 for stride in x.stride()[:-1])
    return x.stride(-1) == 1 and even and x.storage_offset() % 2 == 0


class _Rotate(torch.autograd.Function):
    """The rotation by a ``_InterleavedTable`` (its table and None) or a ``_HalfTable``; the gradient rotates back."""

    @staticmethod
    def forward(table: Tensor, sin: Tensor | None, pairs: int, *heads_BHSK: Tensor) -> tuple[Tensor, ...]:
        if sin is not None and _compiled:
            return _compiled(table, sin, pairs, *heads_BHSK)
        out = []
        for x in heads_BHSK:
            # Heads that were split off a projection lie as [B, S, H, K]: work in the order of memory.
            split_off = x.stride(-3) < x.stride(-2)
            axis = -3 if split_off else -2
            cos, own_sin = table, sin
            if split_off:
                x, cos = x.transpose(-3, -2), table.transpose(-3, -2)
                own_sin = None if sin is None else sin.transpose(-3, -2)
            if own_sin is None:
                rotated = _multiply_interleaved(x, cos, axis)
            else:
                rotated = _multiply_half(x, cos, own_sin, pairs, axis)
            out.append(rotated.transpose(-3, -2) if split_off else rotated)
        return tuple(out)

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


def check_pairs(scheme: str, channels: int, said: str) -> None:
    """Raise ConfigError unless ``channels`` is an even number above 0; ``said`` tells where it comes from."""
    refuse(
        channels < 2 or channels % 2,
        f"{scheme} rotates pairs of channels, an even number: {said} is {channels} channels",
    )


def add_head_axis(cos: Tensor, sin: Tensor) -> CosSin:
    """Give cosine and sine a head axis: [B, S, F] becomes [B, 1, S, F]; [B, H, S, F] stays."""
    return (cos, sin) if cos.dim() == 4 else (cos[:, None], sin[:, None])
