"""One scheme at one length on any device: our attention, and every peer that computes the same; part of gpu.py.

Queries, keys and values are [1, 8, S, 64]. A pass is the scheme's ``locate``, the rotation, and attention under a
causal mask; with the backward pass also the gradients of queries, keys, values, the layer's input and the scheme's
parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from timing import OURS
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from clockhands import positions
from clockhands.attention import attend, attend_reference
from clockhands.errors import ConfigError
from clockhands.model.position_config import PositionConfig
from clockhands.model.side_schemes import build_side
from clockhands.scheme_pages.variants import complete_options
from clockhands.schemes import CATALOGUE, AttentionInputs, Composition, Scheme, Sizes, build
from clockhands.schemes.position_presets import POSITION_PRESETS

HEADS, WIDTH, LAYERS = 8, 64, 12
SIZES = Sizes(HEADS * WIDTH, HEADS * WIDTH, HEADS, WIDTH, LAYERS, causal=True)
PLAIN, MASK, FLEX = "SDPA, no position", "SDPA, bias as a mask", "FlexAttention, compiled"
TEXT_ON_AXES = ("mrope",)
"""Schemes of several coordinates that also read text, whose coordinates are all equal."""
SIMPLE = frozenset({"encode", "locate", "rotate", "bias"})
"""Hooks that SDPA and FlexAttention can stand in for: rotated queries and keys, and something added to the logits."""
STRICT, SHORT = 1e-4, 512
"""How far two numbers of outputs in float32 may lie apart, as a share of one and on top of it; at so many tokens."""
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""How far two outputs of a type may lie apart, as the root mean square of the difference over that of one. In 16 bits a
large bias as a mask is coarse, so that a term left out might not show; it does in float32."""
LAST = 64
"""So many of the last queries are also computed step by step."""


class Case:
    """A scheme at one length: queries, keys, values, the layer's input, and every way to attend with it."""

    def __init__(
        self, scheme: Scheme, length: int, dtype: torch.dtype, device: torch.device, compiled: bool = True
    ) -> None:
        torch.manual_seed(0)
        self.compiled = compiled
        self.scheme = scheme.to(device=device, dtype=dtype).eval()
        self.qkv = [torch.randn(1, HEADS, length, WIDTH, device=device, dtype=dtype) for _ in range(3)]
        self.x = torch.randn(1, length, HEADS * WIDTH, device=device, dtype=dtype)
        self.gradient = torch.randn_like(self.qkv[0])
        self.pos = positions.count_up(1, length, device=device)
        if (axes := scheme.declares.axes or 1) > 1:
            self.pos = positions.repeat_on_axes(self.pos, axes)
        self.leaves = [*self.qkv, self.x, *(weight for weight in scheme.parameters() if weight.requires_grad)]

    def shorten(self) -> Case:
        """Return the same scheme in float32 at a length at which everything fits, without the compiler."""
        length = min(SHORT, self.x.shape[1])
        return Case(copy.deepcopy(self.scheme).float(), length, torch.float32, self.x.device, compiled=False)

    def list_ways(self) -> dict[str, Callable[[], Tensor]]:
        """Return our attention and the peers, each as a function that returns the attended values."""
        ways: dict[str, Callable[[], Tensor]] = {OURS: self.attend, PLAIN: self.attend_plainly}
        hooks = self.scheme.active_hooks()
        if hooks <= SIMPLE and "bias" in hooks:
            ways[MASK] = self.attend_with_mask
        if hooks <= SIMPLE and ("bias" not in hooks or self.is_lean):
            ways[FLEX] = self.attend_with_flex
        return ways

    def list_equals(self) -> list[str]:
        """Return the peers that compute the same function as our attention."""
        same = [name for name in self.list_ways() if name in (MASK, FLEX)]
        return [*same, PLAIN] if not self.scheme.active_hooks() - {"encode"} else same

    def locate(self) -> Tensor:
        """Return the positions, or the coordinates that the tokens compute for themselves."""
        own = self.scheme.locate(self.x, self.pos, None)
        return self.pos if own is None else own

    def attend(self) -> Tensor:
        where = self.locate()
        return attend(self.scheme, *self.qkv, where, where, causal=True)

    def attend_plainly(self) -> Tensor:
        return F.scaled_dot_product_attention(*self.qkv, is_causal=True)

    def attend_with_mask(self) -> Tensor:
        """Give SDPA the whole bias: one that never changes is made once, any other in every pass."""
        where, v = self.locate(), self.qkv[2]
        q, k = self.scheme.rotate(*self.qkv[:2], where, where)
        mask = self._fixed_mask if self.is_fixed else self._lay_out(q, k, where)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scheme.scale(WIDTH))

    def attend_with_flex(self) -> Tensor:
        """Give FlexAttention the scheme's ``score_mod``; causal mask, windows and chunks are a block mask made once."""
        where, v = self.locate(), self.qkv[2]
        q, k = self.scheme.rotate(*self.qkv[:2], where, where)
        changes = [part.score_mod(where, where, q, k) for part in list_biases(self.scheme) if not part.masks]

        def change(score: Tensor, *at: Tensor) -> Tensor:
            for change_by_part in changes:
                score = change_by_part(score, *at)
            return score

        attend_with = compile_flex_attention() if self.compiled else flex_attention
        return attend_with(
            q, k, v, score_mod=change if changes else None, block_mask=self._block_mask,
            scale=self.scheme.scale(WIDTH),
        )  # fmt: skip

    @property
    def is_lean(self) -> bool:
        """Whether the bias reads neither contents nor coordinates that tokens compute for themselves."""
        return self.scheme.lean_score_mod and "locate" not in self.scheme.active_hooks()

    @property
    def is_fixed(self) -> bool:
        """Whether the bias depends on positions alone, and on no learned parameter."""
        parts = list_biases(self.scheme)
        return self.is_lean and not any(weight.requires_grad for part in parts for weight in part.parameters())

    @property
    def held_bytes(self) -> int:
        """The memory of a mask that was made once."""
        mask = self.__dict__.get("_fixed_mask")
        return 0 if mask is None else mask.nbytes

    @cached_property
    def _fixed_mask(self) -> Tensor:
        with torch.no_grad():
            return self._lay_out(*self.scheme.rotate(*self.qkv[:2], self.pos, self.pos), self.pos)

    def _lay_out(self, q: Tensor, k: Tensor, where: Tensor) -> Tensor:
        """Return the whole bias, in the type of the queries as GPUs want it, with -inf above the diagonal."""
        bias = self.scheme.bias(AttentionInputs(q, k, where, where))
        assert bias is not None
        upper = torch.ones(bias.shape[-2:], dtype=torch.bool, device=q.device).triu_(1)
        return bias.to(q.dtype).masked_fill(upper, -torch.inf)

    @cached_property
    def _block_mask(self) -> BlockMask:
        q, k = self.qkv[:2]
        hidden = [part.score_mod(self.pos, self.pos, q, k) for part in list_biases(self.scheme) if part.masks]
        zero = torch.zeros((), device=q.device)

        def may_attend(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            mask = i >= j
            for score_mod in hidden:
                mask = mask & (score_mod(zero, b, h, i, j) == 0)
            return mask

        return create_block_mask(may_attend, 1, HEADS if hidden else None, q.shape[2], k.shape[2], device=q.device)

    @torch.no_grad()
    def compute_reference(self) -> Tensor:
        """Compute the last queries step by step in float32, from the same numbers, rotated in their type.

        Where logits are large, the rounding of rotated queries alone would be more than what is allowed.
        """
        scheme, where = copy.deepcopy(self.scheme).float(), self.locate()
        last = slice(max(0, self.x.shape[1] - LAST), None)
        qpos, (q, k, v) = where[:, :, last] if where.dim() == 4 else where[:, last], self.qkv
        rotated = [x.float() for x in (*self.scheme.rotate(q[:, :, last], k, qpos, where), v)]
        scale = scheme.scale(WIDTH)
        return attend_reference(scheme, *rotated, qpos, where, causal=True, scale=scale, rotated=True).out_BHSK

    def run(self, way: Callable[[], Tensor], backward: bool) -> Callable[[], object]:
        """Return one pass of a way: forward without a graph, or forward and backward."""

        def forward() -> None:
            with torch.no_grad():
                way()

        def both() -> None:
            for leaf in self.leaves:
                leaf.requires_grad_()
            torch.autograd.grad(way(), self.leaves, self.gradient, allow_unused=True)

        return both if backward else forward


@cache
def compile_flex_attention() -> Any:
    """Compile FlexAttention once for this process."""
    return torch.compile(flex_attention)


def list_biases(scheme: Scheme) -> Sequence[Scheme]:
    """Return the scheme, or the parts of a composition, that add a bias."""
    parts = scheme.parts if isinstance(scheme, Composition) else (scheme,)
    return [part for part in parts if "bias" in part.active_hooks()]


def find_largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference of two outputs in float32, in units of ``STRICT``; NaN if either has one."""
    return float(((ours - theirs).abs() / (STRICT * (1 + theirs.abs()))).max())


def find_mean_difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the relative difference of two outputs, in units of what their type allows; NaN if either has one."""
    a, b = ours.float(), theirs.float()
    return float((a - b).square().mean().sqrt() / b.square().mean().sqrt()) / TOLERANCES[ours.dtype]


@torch.no_grad()
def perturb(scheme: Scheme) -> Scheme:
    """Move the parameters away from where they start, so that a term that a peer leaves out shows."""
    generator = torch.Generator().manual_seed(1)
    for parameter in scheme.parameters():
        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return scheme


@cache
def list_schemes() -> dict[str, Callable[[], Scheme] | str]:
    """Return how each scheme and each layer of a preset is built, or why it is left out."""
    found: dict[str, Callable[[], Scheme] | str] = {}
    for name in CATALOGUE:
        scheme = build(CATALOGUE, name, SIZES, complete_options(name))
        axes = scheme.declares.axes or 1
        if name != "none" and scheme.active_hooks() <= {"encode"}:
            found[name] = "acts at the embedding alone: its attention is that of none"
        elif axes > 1 and name not in TEXT_ON_AXES:
            found[name] = f"reads {axes} coordinates, as an image has: no causal decoder's"
        else:
            found[name] = partial(build, CATALOGUE, name, SIZES, complete_options(name))
    for preset in POSITION_PRESETS:
        position = PositionConfig.from_dict({"preset": preset})
        for layer, kind in enumerate(position.pattern[:LAYERS] if position.layers else [""]):
            try:
                _build_layer(position, layer)
            except ConfigError as fault:
                found[preset] = f"does not fit heads of {WIDTH} channels: {fault.faults[0]}"
                break
            name = f"{preset}/{kind}" if kind else preset
            found.setdefault(name, partial(_build_layer, position, layer))
    return found


def _build_layer(position: PositionConfig, layer: int) -> Scheme:
    """Build the scheme of one layer of a preset."""
    built = build_side(position, LAYERS, SIZES)
    return built.modules[built.module_of_layer[layer]]
