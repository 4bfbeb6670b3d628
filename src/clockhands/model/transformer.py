"""The Transformer: stacks of layers over input layers, encoder-decoder, decoder-only or encoder-only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import nn

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.model.attention import AttentionContext, FusedLinear
from clockhands.model.block import Block
from clockhands.model.config import Side, TransformerConfig
from clockhands.model.input import InputLayer, make_norm
from clockhands.model.kv_cache import KVCache
from clockhands.model.masks import (
    Encoded,
    Placement,
    Text,
    count_positions,
    make_cross_placement,
    make_self_mask,
    make_static_cache_mask,
    select_new,
)
from clockhands.model.output import OutputLayer
from clockhands.schemes import NoPosition, Scheme
from clockhands.schemes.frequencies import one_row
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor

__all__ = [
    "Schemes",
    "Stack",
    "Transformer",
    "cache_capacity",
    "copy_tables",
    "count_cached_tokens",
    "initialise_embedding",
    "initialise_linear",
    "split_by_shape",
    "zero_bias",
]


class Schemes(nn.ModuleList):
    """The schemes of one side: one for all layers, or one for each where a scheme has tables of a layer."""

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        first = config.scheme(side)
        count = config.layers(side) if first.per_layer else 1
        super().__init__([first, *(config.scheme(side) for _ in range(count - 1))])
        # On the meta device, as in from_pretrained, tables have no values: ``restore_tables`` makes them after loading.
        self.built_on_meta = torch.get_default_device().type == "meta"
        self.skip_every = config.position(side).skip_every
        self.axes = first.declares.axes
        self.has_locate = "locate" in first.active_hooks()
        self._no_position = (NoPosition(),)  # in a tuple, so that nn.Module does not register it

    def of(self, layer: int) -> Scheme:
        """Return the scheme of a layer; every ``skip_every``-th layer has no position."""
        if self.skip_every and (layer + 1) % self.skip_every == 0:
            return self._no_position[0]
        scheme = self[layer if len(self) > 1 else 0]
        assert isinstance(scheme, Scheme)
        return scheme


class CacheLimit(NamedTuple):
    """Cached keys are stale once the text exceeds ``length`` tokens, because of a transform or scheme, ``cause``."""

    cause: str
    length: int


class Stack(nn.Module):
    """The encoder or the decoder: input layer, layers, and a last norm if the configuration has one."""

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        super().__init__()
        self.position = config.position(side)
        self.input = InputLayer(config, side)
        self.schemes = Schemes(config, side)
        self.transform = self.position.make_transform()
        self.blocks = nn.ModuleList(Block(config, side) for _ in range(config.layers(side)))
        self.norm = make_norm(config) if config.has_final_norm else None

    @cached_property
    def cache_limit(self) -> CacheLimit | None:
        """The length from which on cached keys are stale, and its cause; None if the cache is always valid.

        Rotating cached keys again at every step does not help: their values, and keys of later layers, come from states
        that were computed with the old positions. Only the last layer's states are never read again.
        """
        if self.transform is not None and self.transform.depends_on_length:
            return CacheLimit(str(self.position.transform), 0)
        # The states of the last layer become no keys.
        below = [self.schemes.of(layer) for layer in range(len(self.blocks) - 1)]
        changing = [scheme for scheme in below if scheme.declares.depends_on_length]
        first = self.schemes.of(0)
        if first.declares.depends_on_length and "encode" in first.active_hooks():
            changing.append(first)
        lengths = [scheme.declares.steady_length for scheme in changing]
        return CacheLimit(self.position.scheme, min(lengths)) if changing else None

    def refuse_stale_cache(self, length: int | None) -> None:
        """Raise PositionError if cached keys are stale in a text of ``length`` tokens (None: not known in tracing)."""
        if self.cache_limit is None:
            return
        cause, steady = self.cache_limit
        if length is None or length > steady:
            beyond = f" once the text is longer than {steady} tokens" if steady else ""
            raise PositionError(
                f"{cause} computes positions from the length of the text, so cached keys become stale{beyond}; "
                f"pass use_cache=False, or choose options that do not depend on the length"
            )

    def transform_positions(self, pos_BS: Positions, mask_BS: Bool[Tensor, "B S"] | None) -> Positions:
        """Turn counted positions into what the schemes of this stack read: transformed, on all axes that they need."""
        if self.transform is not None:
            pos_BS = self.transform(pos_BS, mask_BS, training=self.training)
        axes = self.schemes.axes
        return pos_BS if pos_BS.dim() > 2 or axes is None or axes == 1 else positions.text_axes(pos_BS, axes)

    def forward(
        self,
        ids_BS: Int[Tensor, "B S"],
        placement: Placement,
        cache: KVCache | None = None,
        source: Encoded | None = None,
        cross_placement: Placement | None = None,
        cross_schemes: Schemes | None = None,
        cross_cache: KVCache | None = None,
        layer_states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute the last states: ids [B, S] to [B, S, D].

        The input of every layer and the last output are appended to ``layer_states`` if that is a list. The arguments
        from ``source`` to ``cross_cache`` are for the decoder of an encoder-decoder.
        """
        x = self.input(ids_BS, self.encode_input(placement.qpos_BS))
        contexts = []
        for layer in range(len(self.blocks)):
            cross_context = None
            if cross_placement is not None and cross_schemes is not None:
                cross_context = AttentionContext(cross_schemes.of(layer), cross_placement, cross_cache, layer)
            contexts.append((AttentionContext(self.schemes.of(layer), placement, cache, layer), cross_context))
        return self.run_blocks(x, contexts, None if source is None else source.states_BTD, layer_states)

    def encode_input(self, pos_BS: Positions) -> Float[Tensor, "#B S P"] | None:
        """Compute what the input layer adds to the tokens, by the first layer's scheme; None if it adds nothing."""
        first = self.schemes[0]
        assert isinstance(first, Scheme)
        # Rows at the same positions share one encoding.
        return first.encode(one_row(pos_BS))

    def run_blocks(
        self,
        x_BSD: Float[Tensor, "B S D"],
        contexts: Sequence[tuple[AttentionContext, AttentionContext | None]],
        source_BTD: Float[Tensor, "B T D"] | None = None,
        layer_states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Run all layers and the last norm; ``contexts``: of each layer's self-attention and cross-attention."""
        x = x_BSD
        for layer, (block, (context, cross_context)) in enumerate(zip(self.blocks, contexts, strict=True)):
            x = self.add_encoding_again(x, context.scheme, context.placement.qpos_BS, layer)
            if layer_states is not None:
                layer_states.append(x)
            x = block(x, context, source_BTD, cross_context)
        x = x if self.norm is None else self.norm(x)
        if layer_states is not None:
            layer_states.append(x)
        return x

    def add_encoding_again(
        self, x_BSD: Float[Tensor, "B S D"], scheme: Scheme, pos_BS: Positions, layer: int
    ) -> Float[Tensor, "B S D"]:
        """Add the encoding before every layer but the first, if the configuration says so."""
        if not self.position.every_layer or layer == 0:
            return x_BSD
        encoding_BSD = scheme.encode(pos_BS, layer)
        return x_BSD if encoding_BSD is None else x_BSD + encoding_BSD.to(x_BSD.dtype)


class Transformer(nn.Module):
    """The whole model without a loss: ``encode`` and ``decode`` give last states, ``output`` turns them into logits."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config, "encoder") if "encoder" in config.sides else None
        self.decoder = Stack(config, "decoder") if "decoder" in config.sides else None
        self.cross_schemes = Schemes(config, "cross") if "cross" in config.sides else None
        self.output = OutputLayer(config)
        self.initialise()
        self.tie()

    @property
    def input_stack(self) -> Stack:
        """The stack that reads first: the encoder, or the decoder where there is no encoder."""
        return self.get_stack("decoder" if self.encoder is None else "encoder")

    @property
    def output_stack(self) -> Stack:
        """The stack whose states become logits: the decoder, or the encoder where there is no decoder."""
        return self.get_stack("encoder" if self.decoder is None else "decoder")

    def get_stack(self, side: Side) -> Stack:
        """Return the encoder or the decoder. Raises PositionError if the model has none."""
        stack = self.encoder if side == "encoder" else self.decoder
        if stack is None:
            raise PositionError(f"a model of kind {self.config.kind!r} has no {side}")
        return stack

    def tied(self) -> dict[str, str]:
        """Return the tied parameters: {name: name of the parameter that owns the matrix}."""
        if self.config.tying == "none":
            return {}
        side = "decoder" if self.decoder is not None else "encoder"
        matrix = f"{side}.input.tokens.weight"
        both = {"output.weight": matrix}
        if self.config.tying == "three-way" and self.encoder is not None and self.decoder is not None:
            both["encoder.input.tokens.weight"] = matrix
        return both

    def tie(self) -> None:
        """Make the tied matrices one."""
        for name, source in self.tied().items():
            owner, _, attribute = name.rpartition(".")
            setattr(self.get_submodule(owner), attribute, self.get_parameter(source))

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise embeddings, linear layers and learned token scales. Norms and schemes do so at construction.

        All is drawn by ``torch.nn.init``, which transformers keeps away from what a checkpoint has filled.
        """
        for _, draw in self.list_initialisers():
            draw()

    def list_initialisers(self, *, schemes: bool = False) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield every module that draws parameters, by name, with the function that draws them.

        ``schemes``: whether theirs are among them.
        """
        in_schemes = {id(part) for module in self.modules() if isinstance(module, Scheme) for part in module.modules()}
        # A tied matrix was initialised as an embedding; drawn as an output layer, it would be overwritten.
        tied = {name.rpartition(".")[0] for name in self.tied()}
        for name, module in self.named_modules():
            if isinstance(module, Scheme) and schemes:
                yield name, module.reset_parameters
            elif id(module) in in_schemes:
                continue
            elif name in tied:
                yield name, partial(zero_bias, module)
            elif isinstance(module, nn.Embedding):
                yield name, partial(initialise_embedding, module, self.config)
            elif isinstance(module, nn.Linear):
                yield name, partial(initialise_linear, module, self.config)
            elif isinstance(module, InputLayer):
                yield name, module.reset_scale

    @torch.no_grad()
    def restore_tables(self) -> None:
        """Make the schemes' fixed tables again: no checkpoint holds them, and loading begins on the meta device."""
        owners = {"encoder": self.encoder, "decoder": self.decoder}
        for side in self.config.sides:
            owner = owners.get(side)
            schemes = self.cross_schemes if owner is None else owner.schemes
            if schemes is None or not schemes.built_on_meta:
                continue
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                fresh = self.config.build_scheme(side)
            for scheme in schemes:
                copy_tables(fresh, scheme)

    def encode(self, text: Text, layer_states: list[Tensor] | None = None) -> Encoded:
        """Encode a source: the encoder's last states, [B, T, D], with positions and mask.

        The input of every layer and the last output are appended to ``layer_states`` if that is a list. Raises
        PositionError if the model has no encoder.
        """
        if self.encoder is None:
            raise PositionError("a decoder-only model has no encoder; call decode")
        counted_BS, placement = self.make_self_placement(text, "encoder", None)
        x = self.encoder(text.ids_BS, placement, layer_states=layer_states)
        return Encoded(x, counted_BS, text.mask_BT, text.documents_BS)

    def rebuild_source(self, states_BTD: Float[Tensor, "B T D"], text: Text) -> Encoded:
        """Rebuild an encoded source from the encoder's last states; ``text`` has its mask and positions."""
        return Encoded(states_BTD, count_positions(text), text.mask_BT, text.documents_BS)

    def decode(
        self,
        text: Text,
        source: Encoded | None = None,
        cache: KVCache | None = None,
        cross_cache: KVCache | None = None,
        layer_states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute the last states of target tokens, [B, S, D]; cached tokens are not computed again.

        An encoder-decoder needs a ``source``. The input of every layer and the last output are appended to ``states``
        if that is a list. Raises PositionError if there is no decoder or no source, and where cached keys are stale.
        """
        if self.decoder is None:
            raise PositionError("an encoder-only model has no decoder; call encode")
        if self.encoder is not None and source is None:
            raise PositionError("an encoder-decoder needs a source to decode: pass what encode returned as source")
        counted_BS, placement = self.make_self_placement(text, "decoder", cache)
        cross_placement = None if source is None else make_cross_placement(text, counted_BS, source)
        return self.decoder(
            text.ids_BS, placement, cache, source, cross_placement, self.cross_schemes, cross_cache, layer_states
        )

    def make_self_placement(self, text: Text, side: Side, cache: KVCache | None) -> tuple[Positions, Placement]:
        """Return the counted positions, and the placement of self-attention with those that its schemes read.

        While a static cache is traced, the number of cached tokens is a tensor, and the mask is made over the whole
        cache. Raises PositionError where cached keys would be stale.
        """
        stack = self.get_stack(side)
        past = count_cached_tokens(cache)
        if cache is not None:
            stack.refuse_stale_cache(past + text.ids_BS.shape[1] if isinstance(past, int) else None)
        counted_BS = count_positions(text, past)
        new_mask_BS = None if stack.transform is None else select_new(text, past)
        pos = stack.transform_positions(counted_BS, new_mask_BS)
        if isinstance(past, int):
            length = None if cache is None else past + text.ids_BS.shape[1]
            return counted_BS, Placement(
                pos, pos, make_self_mask(text, past), causal=self.config.causal(side), length=length
            )
        if stack.schemes.has_locate:
            raise PositionError(
                f"{stack.position.scheme} locates its tokens itself and cannot be traced with a cache; "
                f"pass use_cache=False, or do not compile the model"
            )
        return counted_BS, Placement(pos, pos, make_static_cache_mask(text, past, cache_capacity(cache)))


def count_cached_tokens(cache: KVCache | None) -> int | Tensor:
    """Return the number of cached tokens as an int; under torch.compile a static cache knows it only as a tensor."""
    past = 0 if cache is None else cache.get_seq_length()
    return past if isinstance(past, int) or torch.compiler.is_compiling() else int(past)


def cache_capacity(cache: KVCache | None) -> int:
    """Return the length of a cache of fixed size."""
    assert cache is not None, "the number of past tokens is unknown only with a cache"
    return int(cache.layers[0].max_cache_len)


def copy_tables(source: nn.Module, target: nn.Module) -> None:
    """Copy the non-persistent buffers of ``source`` to ``target``, on the device of the target."""
    for path, module in source.named_modules():
        part = target.get_submodule(path)
        for name in module._non_persistent_buffers_set:
            table, old = getattr(module, name), getattr(part, name)
            setattr(part, name, None if table is None else table.to(old.device, copy=True))


def initialise_embedding(module: nn.Embedding, config: TransformerConfig) -> None:
    """Draw an embedding from N(0, 1/d_model), so that tokens times √d_model have channels of variance 1.

    ``initialisation`` may say otherwise.
    """
    if config.initialisation == "xavier":
        nn.init.xavier_uniform_(module.weight)
    else:
        spread = {"normal02": 0.02, "unit": 1.0}.get(config.initialisation, config.d_model**-0.5)
        nn.init.normal_(module.weight, std=spread)


@torch.no_grad()
def zero_bias(module: nn.Module) -> None:
    """Set the bias to zero if there is one: an output layer with a tied matrix has a bias of its own."""
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)


def initialise_linear(module: nn.Linear, config: TransformerConfig) -> None:
    """Draw a matrix by Xavier's uniform law, each projection by its own shape even where several are fused.

    With ``initialisation`` "normal02" it is drawn from N(0, 0.02²).
    """
    if config.initialisation == "normal02":
        nn.init.normal_(module.weight, std=0.02)
    else:
        for rows, weight_OI in split_by_shape(module):
            bound = math.sqrt(6 / (module.in_features + rows))
            nn.init.uniform_(weight_OI, -bound, bound)
    zero_bias(module)


def split_by_shape(module: nn.Linear) -> list[tuple[int, Float[Tensor, "O I"]]]:
    """Return (rows of one matrix, weight) of each matrix in a linear layer; equal ones together, in one weight."""
    parts = module.parts if isinstance(module, FusedLinear) else (module.out_features,)
    if len(set(parts)) == 1:
        return [(parts[0], module.weight)]
    weights = module.weight.split(parts)
    for weight_OI in weights:
        # transformers marks a parameter that a checkpoint has filled, and torch.nn.init passes over what is marked.
        weight_OI.__dict__.update(module.weight.__dict__)
    return list(zip(parts, weights, strict=True))
