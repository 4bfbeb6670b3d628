"""The encoder or the decoder: an input layer, layers with their schemes, and a last norm."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import torch
from torch import nn

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.model.attention import AttentionContext
from clockhands.model.block import Block, InputLayer
from clockhands.model.config import TransformerConfig
from clockhands.model.kv_cache import KVCache
from clockhands.model.layers import make_norm
from clockhands.model.masks import EncodedSource, Placement
from clockhands.model.position_config import Side, StackSide
from clockhands.schemes import NoPosition, Scheme
from clockhands.schemes.composition_rules import combine_declarations
from clockhands.schemes.frequencies import take_shared_row
from clockhands.schemes.scheme import Declares, QueryPositions
from clockhands.shapes import Bool, Float, Int, Tensor


class SideSchemes(nn.ModuleList):
    """The schemes of one side: one for all layers that are alike, or one for each layer if a part is ``per_layer``.

    An index, and iteration, give distinct schemes and not layers: the scheme of a layer is ``get_scheme(layer)``.

    ``name``: the schemes in words, for messages. ``axes``: the number of coordinates of the positions that they read;
    None: any number. ``has_locate``: whether any of them computes positions from a layer's input.
    """

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        built = config.build_schemes(side)
        super().__init__(built.modules)
        # On the meta device, as in from_pretrained, tables have no values: ``restore_tables`` makes them after loading.
        self.built_on_meta = torch.get_default_device().type == "meta"
        position = config.get_position_config(side)
        self.skip_every = position.skip_every
        self.name = f"{position.name} in cross-attention" if side == "cross" else position.name
        self._module_of_layer = tuple(built.module_of_layer)
        axes = (scheme.declares.axes for scheme in built.modules)
        self.axes = max((count for count in axes if count is not None), default=None)
        self.has_locate = any("locate" in scheme.active_hooks() for scheme in built.modules)
        # In a tuple, so that nn.Module does not register them.
        self._no_position, self._at_input = (NoPosition(),), (built.at_input,)

    @property
    def at_input(self) -> Scheme:
        """The scheme that encodes positions for the input layer.

        Its ``encode`` may return None, and no layer need have this scheme.
        """
        return self._at_input[0]

    @property
    def declares(self) -> Declares:
        """What all schemes of the side promise together."""
        return combine_declarations(self.used)

    @property
    def used(self) -> list[Scheme]:
        """The schemes that the side calls: at the token embedding, and in its layers."""
        return list(
            dict.fromkeys([self.at_input, *(self.get_scheme(layer) for layer in range(len(self._module_of_layer)))])
        )

    def active_hooks(self) -> frozenset[str]:
        """Return the hooks that any scheme of the side needs."""
        return frozenset().union(*(scheme.active_hooks() for scheme in self.used))

    def get_scheme(self, layer: int) -> Scheme:
        """Return the scheme of a layer; every ``skip_every``-th layer has no position."""
        if self.skip_every and (layer + 1) % self.skip_every == 0:
            return self._no_position[0]
        return cast(Scheme, self[self._module_of_layer[layer]])


class Stack(nn.Module):
    """The encoder or the decoder: input layer, layers, and a last norm if the configuration has one."""

    def __init__(self, config: TransformerConfig, side: StackSide) -> None:
        super().__init__()
        self.position_config = config.get_position_config(side)
        self.input = InputLayer(config, side)
        self.schemes = SideSchemes(config, side)
        self.transform = self.position_config.make_transform()
        self.blocks = nn.ModuleList(Block(config, side, layer) for layer in range(config.count_layers(side)))
        self.norm = make_norm(config) if config.has_final_norm else None
        self._cross_schemes: tuple[SideSchemes, ...] = ()

    @property
    def cross_schemes(self) -> SideSchemes | None:
        """The schemes of the cross-attention in this stack's layers; None if they have none."""
        return self._cross_schemes[0] if self._cross_schemes else None

    def share_cross_schemes(self, schemes: SideSchemes) -> None:
        """Let the layers use schemes of cross-attention, which belong to the ``Transformer``."""
        # In a tuple, so that nn.Module does not register them a second time.
        self._cross_schemes = (schemes,)

    @cached_property
    def cache_limit(self) -> tuple[str, int] | None:
        """The transform or scheme for which cached keys become stale, and the most tokens of a text until they do.

        None if they never do. A cache of unrotated keys does not help: cached values, and the keys of later layers,
        come from states that were computed with the old positions.
        """
        if self.transform is not None and self.transform.depends_on_length:
            return str(self.position_config.transform), 0
        # The schemes of the last layer may depend on the length: no keys are computed from the states that it returns,
        # and its own keys are cached unrotated where their rotation changes (``Declares.cache``).
        layers, sides = range(len(self.blocks) - 1), (self.schemes, *self._cross_schemes)
        used = [(schemes.name, schemes.get_scheme(layer)) for schemes in sides for layer in layers]
        if "encode" in self.schemes.at_input.active_hooks():
            used.append((self.schemes.name, self.schemes.at_input))
        changing = [(name, scheme.declares) for name, scheme in used if scheme.declares.depends_on_length]
        limits = [(name, declares.steady_length) for name, declares in changing]
        return min(limits, key=lambda limit: limit[1], default=None)

    def refuse_stale_cache(self, length: int | None) -> None:
        """Raise PositionError if cached keys are stale in a text of ``length`` tokens (None: not known in tracing)."""
        cause, limit = self.cache_limit or ("", 0)
        if cause and (length is None or length > limit):
            beyond = f" once the text is longer than {limit} tokens" if limit else ""
            raise PositionError(
                f"{cause} computes positions from the length of the text, so cached keys become stale{beyond}; "
                f"pass use_cache=False, or choose options that do not depend on the length"
            )

    def transform_positions(self, pos: QueryPositions, mask_BS: Bool[Tensor, "B S"] | None) -> QueryPositions:
        """Turn counted positions into those that this stack's schemes read: [B, S], or [B, S, A].

        For schemes of A coordinates, all A coordinates of a counted position are equal. ``mask_BS`` is False at
        padding; None: there is none.
        """
        if self.transform is not None:
            pos = self.transform(pos, mask_BS, training=self.training)
        axes = self.schemes.axes
        return pos if pos.dim() > 2 or axes is None or axes == 1 else positions.repeat_on_axes(pos, axes)

    def forward(
        self,
        ids_BS: Int[Tensor, "B S"],
        placement: Placement,
        cache: KVCache | None = None,
        source: EncodedSource | None = None,
        cross_placement: Placement | None = None,
        cross_cache: KVCache | None = None,
        layer_states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute the last states: ids [B, S] to [B, S, D].

        The input of every layer and the last states are appended to ``layer_states`` if that is a list. The arguments
        from ``source`` to ``cross_cache`` are for the decoder of an encoder-decoder. Raises PositionError for positions
        that a scheme does not take.
        """
        x = self.input(ids_BS, self.encode_positions(placement.qpos))
        for layer, block in enumerate(self.blocks):
            context = AttentionContext(self.schemes.get_scheme(layer), placement, cache, layer)
            cross_context = None
            if cross_placement is not None and self.cross_schemes is not None:
                scheme = self.cross_schemes.get_scheme(layer)
                cross_context = AttentionContext(scheme, cross_placement, cross_cache, layer)
            if self.position_config.every_layer and layer:  # the first layer has the encoding already
                encoding_BSD = context.scheme.encode(placement.qpos, layer)
                x = x if encoding_BSD is None else x + encoding_BSD.to(x.dtype)
            if layer_states is not None:
                layer_states.append(x)
            x = block(x, context, None if source is None else source.states_BTD, cross_context)
        x = x if self.norm is None else self.norm(x)
        if layer_states is not None:
            layer_states.append(x)
        return x

    def encode_positions(self, pos: QueryPositions) -> Float[Tensor, "#B S P"] | None:
        """Compute the encoding of positions that the input layer combines with the tokens; None if there is none.

        Raises PositionError for positions that the scheme does not take.
        """
        # Rows that are the same memory (an expanded tensor) share one encoding; values are not compared.
        return self.schemes.at_input.encode(take_shared_row(pos))
