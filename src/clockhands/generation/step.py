"""One step of a decoder: a word for each of some hypotheses, with little around the matrix products.

The sums are those of ``model.block``, sublayer by sublayer. What is left out are the modules around them; what is new
is how things lie: on a CPU matrices lie transposed, by which a few rows are multiplied up to twice as fast, and
positions with their encodings are made once and kept.

Between its projections an attention is one of two:

- *plain*: nothing of its scheme is left to do once new queries and keys are turned, so that only the kernel is called.
- any other: ``SelfAttention.looked`` or ``Attention.attended``, which call every hook; a step takes every scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from torch import nn

from clockhands.model import Encoded, Transformer
from clockhands.model.attention import CrossAttention, Look
from clockhands.model.block import Block, FeedForward, Sublayer
from clockhands.model.memory import KeyCache, keeps_positions
from clockhands.model.sight import Sight
from clockhands.schemes import Scheme
from clockhands.schemes.attend.reference import listener
from clockhands.schemes.attend.whole import whole
from clockhands.schemes.base import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

Function = Callable[[Tensor], Tensor]


@runtime_checkable
class Caches(Protocol):
    """What a step reads and adds to: keys of the words and of the source, and how many words were read before."""

    source: Encoded
    length: int

    @property
    def own(self) -> KeyCache: ...

    @property
    def crossed(self) -> KeyCache: ...


@dataclass(frozen=True)
class Matrix:
    """A linear layer over rows. On a CPU its matrix is a copy, which later changes of the model do not reach."""

    weight_IO: Tensor
    bias_O: Tensor | None

    @classmethod
    def of(cls, linear: nn.Linear) -> Matrix:
        """Transposed in memory on a CPU; elsewhere the kernels read both ways alike."""
        weight_IO = linear.weight.detach().T
        bias = linear.bias
        return cls(
            weight_IO.contiguous() if weight_IO.device.type == "cpu" else weight_IO,
            None if bias is None else bias.detach(),
        )

    def __call__(self, x_NI: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        return x_NI @ self.weight_IO if self.bias_O is None else torch.addmm(self.bias_O, x_NI, self.weight_IO)


@dataclass(frozen=True)
class Place:
    """A position, as it is counted and as the schemes read it, and what each layer is given to add."""

    plain: Int[Tensor, "1 1"]
    placed: Positions
    encodings: list[Tensor | None]


@dataclass(frozen=True)
class Now:
    """What all layers of one step share: [B, W] hypotheses, who sees whom, caches, and whether somebody listens."""

    shape: tuple[int, int]
    own: Sight
    beyond: Sight
    caches: Caches
    heard: bool


class Step:
    """The decoder of one model and all that its steps share; make it again when the weights change."""

    def __init__(self, core: Transformer) -> None:
        assert core.decoder is not None and core.cross_schemes is not None, "only a model with two sides translates"
        self.core, self.stack = core, core.decoder
        of, across = self.stack.schemes.of, core.cross_schemes.of
        self.layers = [
            Layer(cast(Block, block), of(index), across(index), index) for index, block in enumerate(self.stack.blocks)
        ]
        self.norm = None if self.stack.norm is None else normed(self.stack.norm)
        self.places: list[Place] = []

    def __call__(
        self, words_BW: Int[Tensor, "B W"], caches: Caches, visible: Bool[Tensor, "B 1 W M"] | None
    ) -> Float[Tensor, "B W D"]:
        """States after these words, all at the next position. ``visible``: of the words in memory, these included."""
        batch, width = words_BW.shape
        place, source = self.place(caches.length), caches.source
        placed = place.placed.expand(batch, width, *place.placed.shape[2:])
        mask = None if source.mask_BT is None else source.mask_BT[:, None, None].expand(-1, 1, width, -1)
        now = Now(
            (batch, width),
            Sight(placed, placed, visible),
            Sight(place.plain.expand(batch, width), source.positions_BT, mask),
            caches,
            listener() is not None,
        )
        first = place.encodings[0]
        x_BWD = self.stack.input(words_BW, None if first is None else first.expand(-1, width, -1))
        x_ND = x_BWD.flatten(0, 1)
        for layer, encoding in zip(self.layers, [None, *place.encodings[1:]], strict=True):
            x_ND = layer(x_ND if encoding is None else x_ND + encoding[0].to(x_ND.dtype), now)
        return (x_ND if self.norm is None else self.norm(x_ND)).view(batch, width, -1)

    def place(self, length: int) -> Place:
        """Where the word after ``length`` words stands; made when asked for, as a scheme's table may end before it."""
        while len(self.places) <= length:
            plain = torch.full((1, 1), len(self.places), device=self.stack.input.tokens.weight.device)
            placed = self.stack.placed(plain, None)
            schemes = [layer.scheme for layer in self.layers] if self.stack.position.every_layer else []
            first = self.stack.schemes[0]
            assert isinstance(first, Scheme)
            again = [scheme.encode(placed, 1 + index) for index, scheme in enumerate(schemes[1:])]
            rest = again or [None] * (len(self.layers) - 1)
            self.places.append(Place(plain, placed, [first.encode(placed), *rest]))
        return self.places[length]


class Layer:
    """A block of the decoder."""

    def __init__(self, block: Block, scheme: Scheme, across: Scheme, index: int) -> None:
        assert block.cross is not None and not block.parallel, "a translator's layers look across, one thing at a time"
        self.scheme = scheme
        self.own = OwnLook(block, scheme, index)
        self.across = AcrossLook(block.cross, across, index)
        self.feed_forward = feeding(block.feed_forward)
        residuals = block.attention_residual, block.cross_residual, block.feed_forward_residual
        self.join_own, self.join_across, self.join_feed = map(joining, residuals)

    def __call__(self, x_ND: Float[Tensor, "N D"], now: Now) -> Float[Tensor, "N D"]:
        x = self.join_own(x_ND, lambda h: self.own(h, now))
        x = self.join_across(x, lambda h: self.across(h, now))
        return self.join_feed(x, self.feed_forward)


class OwnLook:
    """Self-attention of a layer."""

    def __init__(self, block: Block, scheme: Scheme, index: int) -> None:
        self.attention, self.scheme, self.index = block.attention, scheme, index
        self.qkv, self.out = Matrix.of(block.attention.qkv), Matrix.of(block.attention.out)
        self.heads = tuple(part // block.attention.head_dim for part in block.attention.qkv.parts)
        self.plain, self.turns = plain(scheme), "rotate" in scheme.active_hooks()
        self.scale = block.attention.factor(scheme)

    def __call__(self, x_ND: Float[Tensor, "N D"], now: Now) -> Float[Tensor, "N D"]:
        attention, sight, cache = self.attention, now.own, now.caches.own
        qkv = self.qkv(x_ND).view(*now.shape, -1, attention.head_dim).transpose(1, 2)
        q, k, v = qkv.split_with_sizes(self.heads, 1)
        k, v = attention.shared(k), attention.shared(v)
        if not self.plain or now.heard:
            look = Look(self.scheme, sight, cache, self.index)
            return self.out(rows(attention.looked(x_ND.view(*now.shape, -1), q, k, v, look)))
        if self.turns:
            q, k = self.scheme.rotate(q, k, sight.qpos_BS, sight.kpos_BT)
        k, v = cache.update(k, v, self.index)
        return self.out(rows(whole(q, k, v, None, sight.visible_BHSM, False, self.scale, 0.0)))


class AcrossLook:
    """Cross-attention of a layer. Its scheme, if it is to be plain, has nothing to turn: keys are kept as they are."""

    def __init__(self, attention: CrossAttention, scheme: Scheme, index: int) -> None:
        self.attention, self.scheme, self.index = attention, scheme, index
        self.q, self.out = Matrix.of(attention.q), Matrix.of(attention.out)
        self.plain = plain(scheme) and "rotate" not in scheme.active_hooks()
        self.scale = attention.factor(scheme)

    def __call__(self, x_ND: Float[Tensor, "N D"], now: Now) -> Float[Tensor, "N D"]:
        attention, sight, caches = self.attention, now.beyond, now.caches
        q = self.q(x_ND).view(*now.shape, -1, attention.head_dim).transpose(1, 2)
        k, v = attention.remembered_source(caches.source.states_BTD, caches.crossed, self.index, q.device)
        if not self.plain or now.heard:
            return self.out(rows(attention.attended(self.scheme, q, k, v, sight)))
        return self.out(rows(whole(q, k, v, None, sight.visible_BHSM, False, self.scale, 0.0)))


def plain(scheme: Scheme) -> bool:
    """Whether nothing of a scheme is left to do once the new queries and keys are turned."""
    return not keeps_positions(scheme)


def rows(out_BHWK: Float[Tensor, "B H W K"]) -> Float[Tensor, "N I"]:
    """Heads joined; every hypothesis a row."""
    return out_BHWK.transpose(1, 2).reshape(out_BHWK.shape[0] * out_BHWK.shape[2], -1)


def feeding(module: FeedForward) -> Function:
    """The feed-forward sublayer."""
    up, down, activation = Matrix.of(module.up), Matrix.of(module.down), module.activation
    if not module.gated:
        return lambda x: down(activation(up(x)))

    def gated(x_ND: Tensor) -> Tensor:
        gate, x = up(x_ND).chunk(2, dim=-1)
        return down(activation(gate) * x)

    return gated


def joining(sublayer: Sublayer) -> Callable[[Tensor, Function], Tensor]:
    """The residual connection with its norm."""
    norm, residual = normed(sublayer.norm), sublayer.residual
    if sublayer.pre:
        return (lambda x, f: x + f(norm(x))) if residual else (lambda x, f: f(norm(x)))
    return (lambda x, f: norm(x + f(x))) if residual else (lambda x, f: norm(f(x)))


def normed(norm: nn.Module) -> Function:
    """A norm without its module."""
    if not isinstance(norm, nn.LayerNorm):
        return norm.forward
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
