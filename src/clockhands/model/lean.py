"""The decoder in lean mode: the model's own blocks, reading one token a step with little around their matrix products.

Three things differ from a forward pass. On a CPU the weights are stored column-major, which makes a product with few
rows up to twice as fast. Positions and what the input layer adds for them are computed once and kept for all
texts. And an attention whose scheme has nothing left to do after rotation goes straight to its kernel
(``AttentionContext.lean``).
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import nn

from clockhands.attention import current_recorder
from clockhands.errors import PositionError
from clockhands.model.attention import AttentionContext
from clockhands.model.kv_cache import GrowingCache, SourceCache, acts_in_attention, keeps_positions
from clockhands.model.masks import Encoded, Placement, expand_key_mask
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

__all__ = ["DecodingPosition", "DecodingState", "LeanDecoder", "Module", "copy_for_decoding"]

Module = TypeVar("Module", bound=nn.Module)


class DecodingState:
    """What the steps of one batch of texts share: the source, the number of tokens, and the KV caches."""

    def __init__(self, source: Encoded, layers: int) -> None:
        self.source, self.length = source, 0
        self.self_attention, self.cross_attention = GrowingCache(layers), SourceCache(layers)

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        self.source = self.source.select(rows)
        self.self_attention.select(rows)
        self.cross_attention.select(rows)


class DecodingPosition(NamedTuple):
    """A position as it is counted, as the transform makes it for the schemes, and what the input layer adds there."""

    counted: Int[Tensor, "1 1"]
    transformed: Positions
    encoding: Tensor | None


class LeanDecoder:
    """The decoder of an encoder-decoder model, one token a step. Make it again when the weights have changed.

    No scheme or transform of the decoder may depend on the length of the text, as cached keys would become stale
    (``Stack.cache_limit``): a step past that limit is refused. A search reads such texts anew (``UncachedHypotheses``).

    ``attention_ignores_position``: no scheme acts in attention; positions enter at the embedding alone, or not at all.
    """

    def __init__(self, core: Transformer) -> None:
        if core.decoder is None or core.cross_schemes is None:
            raise PositionError(f"a model of kind {core.config.kind!r} reads no source, and a LeanDecoder does")
        self.core, self.stack = core, copy_for_decoding(core.decoder)
        layers = range(len(self.stack.blocks))
        self.schemes = [self.stack.schemes.of(layer) for layer in layers]
        self.cross_schemes = [core.cross_schemes.of(layer) for layer in layers]
        self.attention_ignores_position = not any(map(acts_in_attention, [*self.schemes, *self.cross_schemes]))
        self._lean = [not keeps_positions(scheme) for scheme in self.schemes]
        self._lean_cross = [not acts_in_attention(scheme) for scheme in self.cross_schemes]
        self._positions: list[DecodingPosition] = []

    def make_caches(self, source: Encoded) -> DecodingState:
        """Make empty caches for a batch of texts."""
        return DecodingState(source, len(self.schemes))

    def step(
        self, ids_BW: Int[Tensor, "B W"], caches: DecodingState, mask_B1WM: Bool[Tensor, "B 1 W M"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Read W tokens a row, all at the next position, and return the decoder's last states.

        W tokens of one position are the hypotheses of a beam. ``mask_B1WM`` is over all cached keys and these tokens;
        None: every token may attend to all. Raises PositionError once the text is longer than ``Stack.cache_limit``.
        """
        self.stack.refuse_stale_cache(caches.length + 1)
        batch, width = ids_BW.shape
        position = self._position_after(caches.length)
        pos_BW = position.transformed.expand(batch, width, *position.transformed.shape[2:])
        mask_BT = caches.source.mask_BT
        source_mask = None if mask_BT is None else expand_key_mask(mask_BT, width)
        placement = Placement(pos_BW, pos_BW, mask_B1WM)
        cross_placement = Placement(position.counted.expand(batch, width), caches.source.positions_BT, source_mask)
        contexts = self._make_contexts(caches, placement, cross_placement)
        encoding = None if position.encoding is None else position.encoding.expand(-1, width, -1)
        states_BWD = self.stack.run_blocks(self.stack.input(ids_BW, encoding), contexts, caches.source.states_BTD)
        caches.length += 1
        return states_BWD

    def _make_contexts(
        self, caches: DecodingState, placement: Placement, cross_placement: Placement
    ) -> list[tuple[AttentionContext, AttentionContext]]:
        """Return the contexts of self-attention and of cross-attention of each layer."""
        # A recorder needs the attention weights, which the fused kernel does not return.
        recording = current_recorder() is not None
        own, cross = caches.self_attention, caches.cross_attention
        return [
            (
                AttentionContext(self.schemes[i], placement, own, i, lean=self._lean[i] and not recording),
                AttentionContext(
                    self.cross_schemes[i], cross_placement, cross, i, lean=self._lean_cross[i] and not recording
                ),
            )
            for i in range(len(self.schemes))
        ]

    def _position_after(self, length: int) -> DecodingPosition:
        """Return the position after ``length`` tokens; it is made when a step needs it, as a table may end before."""
        while len(self._positions) <= length:
            counted = torch.full((1, 1), len(self._positions), device=self.stack.input.tokens.weight.device)
            transformed = self.stack.transform_positions(counted, None)
            self._positions.append(DecodingPosition(counted, transformed, self.stack.encode_input(transformed)))
        return self._positions[length]


def copy_for_decoding(module: Module) -> Module:
    """Return a copy of a module for decoding, which shares all tensors but the matrices of its linear layers on a CPU.

    The copy computes what the module computes in evaluation, by the same ``forward`` methods. Nothing is left of what
    ``nn.Module`` puts around them: hooks are not called, and parts are plain attributes. That saves about a microsecond
    at each of the hundred calls and attributes of a step. Matrices lie transposed in memory, their shapes unchanged,
    since a product with few rows then reads them in one sweep.
    """
    if isinstance(module, Scheme):
        return module
    copied = copy.copy(module)
    copied.__class__ = _make_hookless_class(cast(Any, type(module)))
    copied._parameters = dict(module._parameters)
    # An absent part, such as a norm that the configuration does not have, is None.
    copied._modules = {name: child and copy_for_decoding(child) for name, child in module._modules.items()}
    if isinstance(module, nn.Linear) and module.weight.device.type == "cpu":
        weight_OI = module.weight.detach().T.contiguous().T
        copied._parameters["weight"] = nn.Parameter(weight_OI, requires_grad=False)
    # In the instance's own dictionary, parts are found before nn.Module.__getattr__ searches its three tables.
    copied.__dict__.update({**copied._parameters, **copied._modules, "training": False})
    return copied


@cache
def _make_hookless_class(module_class: Any) -> Any:
    """Return a class of modules whose call is its ``forward``."""
    return type(module_class.__name__, (module_class,), {"__call__": module_class.forward})
