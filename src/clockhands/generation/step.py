"""One step of a decoder: a word for each of some hypotheses, with little around the matrix products.

The sums are those of ``model.block``, sublayer by sublayer. What is left out are the modules around them; what is new
is how things lie: on a CPU matrices lie transposed, by which a few rows are multiplied up to twice as fast; positions
with their encodings are made once and kept; and so are the source's keys.

Between its projections an attention is one of two:

- *plain*: nothing of its scheme is left to do once new queries and keys are turned, so that only the kernel is called.
- any other: ``SelfAttention.looked`` or ``Attention.attended``, which call every hook; a step takes every scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast, runtime_checkable

import torch
from torch import nn

from clockhands.attention.reference import current_recorder
from clockhands.attention.request import AttentionRequest
from clockhands.attention.whole import call_fused_kernel, compute_with_bias, prefers_three_lines
from clockhands.model import Encoded, Transformer
from clockhands.model.attention import AttentionContext, CrossAttention
from clockhands.model.block import Block, FeedForward, Sublayer
from clockhands.model.kv_cache import KVCache, keeps_positions
from clockhands.model.masks import Placement
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

NO_HOOKS: frozenset[str] = frozenset()
Function = Callable[[Tensor], Tensor]


@runtime_checkable
class Caches(Protocol):
    """What a step reads and adds to: keys and values of the words and, by layer, of the source (None: not made yet);
    and how many words were read before."""

    source: Encoded
    length: int

    @property
    def own(self) -> KVCache: ...

    @property
    def crossed(self) -> list[tuple[Tensor, Tensor] | None]: ...


@dataclass(frozen=True)
class Place:
    """A position, as it is counted and as the schemes read it, and what each layer is given to add."""

    plain: Int[Tensor, "1 1"]
    placed: Positions
    encodings: list[Tensor | None]


@dataclass
class Now:
    """What all layers of one step share: [B, W] hypotheses at one place, caches, which of the remembered words each
    hypothesis sees and which of the source's (None: all), and whether somebody listens."""

    shape: tuple[int, int]
    place: Place
    caches: Caches
    visible_B1WM: Bool[Tensor, "B 1 W M"] | None
    real_B1WT: Bool[Tensor, "B 1 W T"] | None
    heard: bool

    @cached_property
    def own(self) -> Placement:
        """Words looking at words: one tensor of positions for all layers, which may share what they make of it."""
        placed = self.place.placed
        placed = placed.expand(*self.shape, *placed.shape[2:])
        return Placement(placed, placed, self.visible_B1WM)

    @cached_property
    def beyond(self) -> Placement:
        """Words looking at the source."""
        return Placement(self.place.plain.expand(self.shape), self.caches.source.positions_BT, self.real_B1WT)


Part = Callable[[Tensor, Now], Tensor]
"""A sublayer, over rows: [N, D] to [N, D], where N = B·W."""


class Step:
    """The decoder of one model and all that its steps share; make it again when the weights change.

    ``idle``: no scheme has anything to do in attention; what they give is added before it.
    """

    def __init__(self, core: Transformer) -> None:
        assert core.decoder is not None and core.cross_schemes is not None, "only a model with two sides translates"
        self.core, self.stack = core, core.decoder
        layers = range(len(self.stack.blocks))
        self.schemes = [self.stack.schemes.of(index) for index in layers]
        self.cross_schemes = [core.cross_schemes.of(index) for index in layers]
        self.idle = all(map(idle, [*self.schemes, *self.cross_schemes]))
        self.layers = [
            parts(cast(Block, block), self.schemes[index], self.cross_schemes[index], index)
            for index, block in enumerate(self.stack.blocks)
        ]
        self.norm = (lambda x: x) if self.stack.norm is None else normed(self.stack.norm)
        self.places: list[Place] = []

    def __call__(
        self, words_BW: Int[Tensor, "B W"], caches: Caches, visible: Bool[Tensor, "B 1 W M"] | None
    ) -> Float[Tensor, "B W D"]:
        """States after these words, all at the next position. ``visible``: of the words in memory, these included."""
        batch, width = words_BW.shape
        place, mask_BT = self.place(caches.length), caches.source.mask_BT
        real = None if mask_BT is None else mask_BT[:, None, None].expand(-1, 1, width, -1)
        now = Now((batch, width), place, caches, visible, real, current_recorder() is not None)
        first, *later = place.encodings
        x_BWD = self.stack.input.forward(words_BW, None if first is None else first.expand(-1, width, -1))
        x_ND = x_BWD.view(batch * width, -1)
        for layer, encoding in zip(self.layers, [None, *later], strict=True):
            x_ND = x_ND if encoding is None else x_ND + encoding[0].to(x_ND.dtype)
            for part in layer:
                x_ND = part(x_ND, now)
        return self.norm(x_ND).view(batch, width, -1)

    def place(self, length: int) -> Place:
        """Where the word after ``length`` words stands; made when asked for, as a scheme's table may end before it."""
        while len(self.places) <= length:
            plain = torch.full((1, 1), len(self.places), device=self.stack.input.tokens.weight.device)
            placed = self.stack.transform_positions(plain, None)
            # The input layer asks the side's first scheme, whichever the first layer has.
            first, again = cast(Scheme, self.stack.schemes[0]), self.stack.position.every_layer
            later = [scheme.encode(placed, i) if again else None for i, scheme in enumerate(self.schemes) if i]
            self.places.append(Place(plain, placed, [first.encode(placed), *later]))
        return self.places[length]


def parts(block: Block, scheme: Scheme, across: Scheme, index: int) -> tuple[Part, Part, Part]:
    """A layer."""
    assert block.cross is not None and not block.parallel, "a translator's layers look across, one thing at a time"
    return (
        joined(block.attention_residual, OwnLook(block, scheme, index)),
        joined(block.cross_residual, AcrossLook(block.cross, across, index)),
        joined(block.feed_forward_residual, feeding(block.feed_forward)),
    )


class OwnLook:
    """Self-attention of a layer."""

    def __init__(self, block: Block, scheme: Scheme, index: int) -> None:
        self.attention, self.scheme, self.index = block.attention, scheme, index
        self.qkv, self.out = linear(block.attention.qkv), linear(block.attention.out)
        self.heads = tuple(part // block.attention.head_dim for part in block.attention.qkv.parts)
        self.plain, self.turns = plain(scheme), "rotate" in scheme.active_hooks()
        self.scale = block.attention.logit_scale(scheme)

    def __call__(self, x_ND: Float[Tensor, "N D"], now: Now) -> Float[Tensor, "N D"]:
        attention, cache = self.attention, now.caches.own
        q, k, v = heads(self.qkv(x_ND), now.shape, attention.head_dim).split_with_sizes(self.heads, 1)
        k, v = attention.repeat_heads(k), attention.repeat_heads(v)
        if not self.plain or now.heard:
            context = AttentionContext(self.scheme, now.own, cache, self.index)
            return self.out(rows(attention.attend_between(x_ND.view(*now.shape, -1), q, k, v, context)))
        if self.turns:
            q, k = self.scheme.rotate(q, k, now.own.qpos_BS, now.own.kpos_BT)
        k, v = cache.update(k, v, self.index)
        return self.out(rows(attend_plainly(self.scheme, q, k, v, now.own, self.scale)))


class AcrossLook:
    """Cross-attention of a layer. Its scheme, if it is to be plain, has nothing to turn: keys are kept as they are."""

    def __init__(self, attention: CrossAttention, scheme: Scheme, index: int) -> None:
        self.attention, self.scheme, self.index = attention, scheme, index
        self.q, self.out = linear(attention.q), linear(attention.out)
        self.plain, self.scale = idle(scheme), attention.logit_scale(scheme)

    def __call__(self, x_ND: Float[Tensor, "N D"], now: Now) -> Float[Tensor, "N D"]:
        q = heads(self.q(x_ND), now.shape, self.attention.head_dim)
        k, v = now.caches.crossed[self.index] or self.source(now.caches, q.device)
        if not self.plain or now.heard:
            return self.out(rows(self.attention.attend_heads(self.scheme, q, k, v, now.beyond)))
        return self.out(rows(attend_plainly(self.scheme, q, k, v, now.beyond, self.scale)))

    def source(self, caches: Caches, device: torch.device) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, which are kept. A head's lie side by side: kernels read them in one sweep."""
        k, v = self.attention.project_source(caches.source.states_BTD, None, self.index, device)
        caches.crossed[self.index] = kept = k.contiguous(), v.contiguous()
        return kept


def plain(scheme: Scheme) -> bool:
    """Whether nothing of a scheme is left to do once the new queries and keys are turned."""
    return not keeps_positions(scheme)


def idle(scheme: Scheme) -> bool:
    """Whether a scheme has nothing to do in attention at all."""
    return plain(scheme) and "rotate" not in scheme.active_hooks()


def heads(x_NI: Float[Tensor, "N I"], shape: tuple[int, int], head_dim: int) -> Float[Tensor, "B H W K"]:
    """Rows as heads of hypotheses."""
    return x_NI.view(*shape, -1, head_dim).transpose(1, 2)


def rows(out_BHWK: Float[Tensor, "B H W K"]) -> Float[Tensor, "N I"]:
    """Heads joined; every hypothesis a row."""
    return out_BHWK.transpose(1, 2).reshape(out_BHWK.shape[0] * out_BHWK.shape[2], -1)


def attend_plainly(
    scheme: Scheme,
    q_BHWK: Float[Tensor, "B H W K"],
    k_BHTK: Float[Tensor, "B H T K"],
    v_BHTK: Float[Tensor, "B H T Kv"],
    placement: Placement,
    scale: float,
) -> Float[Tensor, "B H W Kv"]:
    """Attend where nothing of a scheme is left to do. The usual case goes straight to the kernel."""
    if placement.mask_BHSM is None and not prefers_three_lines(q_BHWK, k_BHTK, None):
        return call_fused_kernel(q_BHWK, k_BHTK, v_BHTK, scale=scale)
    # No hook that is still to come reads the positions of the keys; only their shape must be right.
    kpos_BT = placement.qpos_BS.new_zeros(()).expand(len(k_BHTK), k_BHTK.shape[2])
    request = AttentionRequest(
        scheme, q_BHWK, k_BHTK, v_BHTK, placement.qpos_BS, kpos_BT, placement.mask_BHSM, False, scale, 0.0, NO_HOOKS
    )
    return compute_with_bias(request, None)


def linear(module: nn.Linear) -> Function:
    """A linear layer over rows. On a CPU its matrix is a copy, which later changes of the model do not reach.

    It lies transposed there; elsewhere the kernels read both ways alike.
    """
    weight_IO, bias = module.weight.detach().T, module.bias
    weight_IO = weight_IO.contiguous() if weight_IO.device.type == "cpu" else weight_IO
    if bias is None:
        return lambda x_NI: x_NI @ weight_IO
    bias_O = bias.detach()
    return lambda x_NI: torch.addmm(bias_O, x_NI, weight_IO)


def feeding(module: FeedForward) -> Part:
    """The feed-forward sublayer."""
    up, down, activation = linear(module.up), linear(module.down), module.activation
    if not module.gated:
        return lambda x_ND, _: down(activation(up(x_ND)))

    def gated(x_ND: Tensor, _: Now) -> Tensor:
        gate, x = up(x_ND).chunk(2, dim=-1)
        return down(activation(gate) * x)

    return gated


def joined(sublayer: Sublayer, f: Part) -> Part:
    """A sublayer in its residual connection with its norm."""
    norm, residual = normed(sublayer.norm), sublayer.residual
    if sublayer.pre:
        return (lambda x, now: x + f(norm(x), now)) if residual else (lambda x, now: f(norm(x), now))
    return (lambda x, now: norm(x + f(x, now))) if residual else (lambda x, now: norm(f(x, now)))


def normed(norm: nn.Module) -> Function:
    """A norm without its module."""
    if not isinstance(norm, nn.LayerNorm):
        return norm.forward
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
