"""The decoder in lean mode: the model's own blocks, reading one token a step with little around their matrix products.

Three things differ from a forward pass. On a CPU the matrices lie transposed in memory, by which few rows are
multiplied up to twice as fast. Positions and what the input layer adds for them are computed once and kept for all
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
from clockhands.model.masks import Encoded, Placement
from clockhands.model.transformer import Transformer
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

__all__ = ["Caches", "LeanDecoder", "Module", "Place", "copy_lean"]

Module = TypeVar("Module", bound=nn.Module)


class Caches:
    """What the steps of one batch of texts share: the source, and the KV caches of both kinds of attention."""

    def __init__(self, source: Encoded, layers: int) -> None:
        self.source, self.length = source, 0
        self.own, self.cross = GrowingCache(layers), SourceCache(layers)

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        self.source = self.source.select(rows)
        self.own.select(rows)
        self.cross.select(rows)


class Place(NamedTuple):
    """A position as it is counted, as the schemes read it, and what the input layer adds there."""

    counted: Int[Tensor, "1 1"]
    read: Positions
    encoding: Tensor | None


class LeanDecoder:
    """The decoder of an encoder-decoder model, one token a step. Make it again when the weights have changed.

    No scheme or transform of the decoder may depend on the length of the text, as cached keys would become stale
    (``Stack.cache_limit``): a step past that limit is refused. A search reads such texts anew (``Reread``).

    ``is_idle``: no scheme acts in attention; positions enter at the embedding alone, or not at all.
    """

    def __init__(self, core: Transformer) -> None:
        if core.decoder is None or core.cross_schemes is None:
            raise PositionError(f"a model of kind {core.config.kind!r} reads no source, and a LeanDecoder does")
        self.core, self.stack = core, copy_lean(core.decoder)
        layers = range(len(self.stack.blocks))
        self.schemes = [self.stack.schemes.of(layer) for layer in layers]
        self.cross_schemes = [core.cross_schemes.of(layer) for layer in layers]
        self.is_idle = not any(map(acts_in_attention, [*self.schemes, *self.cross_schemes]))
        self._lean = [not keeps_positions(scheme) for scheme in self.schemes]
        self._lean_cross = [not acts_in_attention(scheme) for scheme in self.cross_schemes]
        self._places: list[Place] = []

    def make_caches(self, source: Encoded) -> Caches:
        """Make empty caches for a batch of texts."""
        return Caches(source, len(self.schemes))

    def step(
        self, ids_BW: Int[Tensor, "B W"], caches: Caches, mask_B1WM: Bool[Tensor, "B 1 W M"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Read W tokens a row, all at the next position, and return the decoder's last states.

        W tokens of one position are the hypotheses of a beam. ``mask_B1WM`` is over all cached keys and these tokens;
        None: every token may attend to all. Raises PositionError once the text is longer than ``Stack.cache_limit``.
        """
        self.stack.refuse_stale_cache(caches.length + 1)
        batch, width = ids_BW.shape
        place = self._place(caches.length)
        read = place.read.expand(batch, width, *place.read.shape[2:])
        mask_BT = caches.source.mask_BT
        source_mask = None if mask_BT is None else mask_BT[:, None, None].expand(-1, 1, width, -1)
        own = Placement(read, read, mask_B1WM)
        cross = Placement(place.counted.expand(batch, width), caches.source.positions_BT, source_mask)
        # A recorder is handed the weights, which the kernel alone does not give.
        heard = current_recorder() is not None
        contexts = [
            (
                AttentionContext(self.schemes[i], own, caches.own, i, lean=self._lean[i] and not heard),
                AttentionContext(self.cross_schemes[i], cross, caches.cross, i, lean=self._lean_cross[i] and not heard),
            )
            for i in range(len(self.schemes))
        ]
        encoding = None if place.encoding is None else place.encoding.expand(-1, width, -1)
        states_BWD = self.stack.run_blocks(self.stack.input(ids_BW, encoding), contexts, caches.source.states_BTD)
        caches.length += 1
        return states_BWD

    def _place(self, length: int) -> Place:
        """Return the place after ``length`` tokens; made when it is first asked for, as a table may end before it."""
        while len(self._places) <= length:
            counted = torch.full((1, 1), len(self._places), device=self.stack.input.tokens.weight.device)
            read = self.stack.transform_positions(counted, None)
            self._places.append(Place(counted, read, self.stack.encode_input(read)))
        return self._places[length]


def copy_lean(module: Module) -> Module:
    """Return a copy of a module for decoding, which shares all tensors but the matrices of its linear layers on a CPU.

    The copy computes what the module computes in evaluation, by the same ``forward`` methods. Nothing is left of what
    ``nn.Module`` puts around them: hooks are not called, and parts are plain attributes. That saves about a microsecond
    at each of the hundred calls and attributes of a step. Matrices lie transposed in memory, their shapes unchanged,
    since a product with few rows then reads them in one sweep.
    """
    if isinstance(module, Scheme):
        return module
    made = copy.copy(module)
    made.__class__ = _without_hooks(cast(Any, type(module)))
    made._parameters = dict(module._parameters)
    made._modules = {name: child and copy_lean(child) for name, child in module._modules.items()}
    if isinstance(module, nn.Linear) and module.weight.device.type == "cpu":
        weight_OI = module.weight.detach().T.contiguous().T
        made._parameters["weight"] = nn.Parameter(weight_OI, requires_grad=False)
    # Found before nn.Module.__getattr__ searches its three tables.
    made.__dict__.update({**made._parameters, **made._modules, "training": False})
    return made


@cache
def _without_hooks(kind: Any) -> Any:
    """Return a class of modules whose call is its ``forward``; ``kind``: the class of the modules."""
    return type(kind.__name__, (kind,), {"__call__": kind.forward})
