"""The Transformer: an encoder and a decoder, a decoder alone, or an encoder alone, and the output layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from clockhands.errors import PositionError, UsageError
from clockhands.model.block import InputLayer
from clockhands.model.config import TransformerConfig
from clockhands.model.kv_cache import KVCache, count_cached_tokens, refuse_padding_after_tokens
from clockhands.model.layers import ACTIVATIONS, FusedLinear, make_norm
from clockhands.model.masks import (
    EncodedSource,
    Placement,
    TokenBatch,
    count_positions,
    make_cross_placement,
    make_self_mask,
    make_static_cache_mask,
    select_mask_of_new_tokens,
)
from clockhands.model.position_config import StackSide
from clockhands.model.stack import SideSchemes, Stack
from clockhands.schemes import Scheme
from clockhands.schemes.scheme import QueryPositions
from clockhands.shapes import Float, Tensor


@torch.no_grad()
def _zero_bias(module: nn.Module) -> None:
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)


def initialise_linear(module: nn.Linear, config: TransformerConfig) -> None:
    """Draw the matrix of a linear layer: with ``initialisation`` "normal02" from N(0, 0.02²), else by Xavier's rule.

    The bound of Xavier's uniform distribution (Glorot & Bengio 2010, equation 16) is that of each projection alone,
    even where several are fused into one matrix. The bias becomes zero.
    """
    if config.initialisation == "normal02":
        nn.init.normal_(module.weight, std=0.02)
    else:
        widths = module.widths if isinstance(module, FusedLinear) else (module.out_features,)
        # Projections of equally many rows are drawn as one matrix.
        weights = module.weight.split(widths) if len(set(widths)) > 1 else [module.weight]
        for rows, weight_OI in zip(widths, weights, strict=False):
            # transformers marks the parameters that a checkpoint has filled, and torch.nn.init leaves them alone.
            weight_OI.__dict__.update(module.weight.__dict__)
            bound = math.sqrt(6 / (module.in_features + rows))
            nn.init.uniform_(weight_OI, -bound, bound)
    _zero_bias(module)


class OutputTransform(nn.Module):
    """norm(act(W x + b)), which BERT's masked language models put before the output matrix (Devlin et al. 2019)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = make_norm(config)

    def forward(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Transform states [..., D] to states [..., D]."""
        return self.norm(self.activation(self.dense(states_ND)))


class OutputLayer(nn.Linear):
    """The linear layer from last states to logits; ``weight`` is [V, D].

    Code that multiplies by ``weight`` itself, as the loss in chunks does, calls ``prepare_states`` first.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config.d_model, config.vocab_size, bias=config.output_bias)
        self.transform = OutputTransform(config) if config.output_transform else None
        self.scale = config.output_scale

    def prepare_states(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Return the states that the matrix multiplies: transformed and scaled where the configuration says so."""
        states = states_ND if self.transform is None else self.transform(states_ND)
        return states if self.scale == 1.0 else states * self.scale

    def forward(self, states_ND: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Compute logits [..., V] of states [..., D]."""
        return super().forward(self.prepare_states(states_ND))


class Transformer(nn.Module):
    """The whole model without a loss: ``encode`` and ``decode`` give last states, ``output`` turns them into logits."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config, "encoder") if "encoder" in config.sides else None
        self.decoder = Stack(config, "decoder") if "decoder" in config.sides else None
        self.cross_schemes = SideSchemes(config, "cross") if "cross" in config.sides else None
        if self.decoder is not None and self.cross_schemes is not None:
            self.decoder.share_cross_schemes(self.cross_schemes)
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

    def get_stack(self, side: StackSide) -> Stack:
        """Return the encoder or the decoder. Raises UsageError if the model does not have it."""
        stack = self.encoder if side == "encoder" else self.decoder
        if stack is None:
            raise UsageError(f"a model of architecture {self.config.architecture!r} has no {side}")
        return stack

    def map_tied_parameters(self) -> dict[str, str]:
        """Return the tied parameters: {name: name of the parameter that owns the matrix}."""
        if self.config.tying == "none":
            return {}
        side = "decoder" if self.decoder is not None else "encoder"
        owner = f"{side}.input.tokens.weight"
        owners = {"output.weight": owner}
        if self.config.tying == "three-way" and self.encoder is not None and self.decoder is not None:
            owners["encoder.input.tokens.weight"] = owner
        return owners

    def tie(self) -> None:
        """Tie parameters: under each tied name, put the parameter that owns the matrix."""
        for name, owner in self.map_tied_parameters().items():
            module, _, attribute = name.rpartition(".")
            setattr(self.get_submodule(module), attribute, self.get_parameter(owner))

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise embeddings, linear layers and learned token scales; norms and schemes initialise themselves.

        Everything is drawn by ``torch.nn.init``: while transformers loads a checkpoint, those functions leave alone
        what it has filled.
        """
        for _, draw in self.list_initialisers():
            draw()

    def list_initialisers(self, *, schemes: bool = False) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the name of every module that draws parameters, and the function that draws them.

        With ``initialisation`` "paper" embeddings are drawn from N(0, 1/d_model), so that tokens times √d_model have
        channels of variance 1; with "normal02" from N(0, 0.02²), with "unit" from N(0, 1), with "xavier" from Xavier's
        uniform distribution (Glorot & Bengio 2010).

        ``schemes``: whether schemes, which initialise themselves at construction, are among the modules. A composition
        is yielded first and draws all its parts; then each part is yielded and drawn again. So where a caller seeds
        every draw by the name, the values of a part follow from its own name.
        """
        config, owners = self.config, [module for module in self.modules() if isinstance(module, Scheme)]
        ids_in_schemes = {id(part) for owner in owners for part in owner.modules()}
        # A tied matrix is initialised as an embedding: drawn again as an output layer, it would be overwritten.
        tied_modules = {name.rpartition(".")[0] for name in self.map_tied_parameters()}
        for name, module in self.named_modules():
            if isinstance(module, Scheme) and schemes:
                yield name, module.reset_parameters
            elif id(module) in ids_in_schemes:
                continue
            elif name in tied_modules:
                yield name, partial(_zero_bias, module)
            elif isinstance(module, nn.Embedding):
                std = {"normal02": 0.02, "unit": 1.0}.get(config.initialisation, config.d_model**-0.5)
                is_xavier = config.initialisation == "xavier"
                draw = nn.init.xavier_uniform_ if is_xavier else partial(nn.init.normal_, std=std)
                yield name, partial(draw, module.weight)
            elif isinstance(module, nn.Linear):
                yield name, partial(initialise_linear, module, config)
            elif isinstance(module, InputLayer) and isinstance(module.scale, nn.Parameter):
                yield name, partial(nn.init.constant_, module.scale, module.initial_scale)

    @torch.no_grad()
    def restore_tables(self) -> None:
        """Make the schemes' fixed tables again: no checkpoint holds them, and loading begins on the meta device.

        The state of the random generator stays as it is, although schemes with parameters draw them here.
        """
        for side in self.config.sides:
            schemes = self.cross_schemes if side == "cross" else self.get_stack(side).schemes
            if schemes is None or not schemes.built_on_meta:
                continue
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                restored = self.config.build_schemes(side)
            for source, scheme in zip(restored.modules, schemes, strict=True):
                for path, module in source.named_modules():
                    target = scheme.get_submodule(path)
                    for name in module._non_persistent_buffers_set:
                        table, old_table = getattr(module, name), getattr(target, name)
                        setattr(target, name, None if table is None else table.to(old_table.device, copy=True))

    def encode(self, tokens: TokenBatch, layer_states: list[Tensor] | None = None) -> EncodedSource:
        """Encode a source: the encoder's last states, [B, T, D], with positions and mask.

        The input of every layer and the last states are appended to ``layer_states`` if that is a list. Raises
        UsageError if the model has no encoder, and PositionError for a mask that is too short and for positions that a
        scheme does not take.
        """
        if self.encoder is None:
            raise UsageError("a decoder-only model has no encoder; call decode")
        counted_BS, placement = self.make_self_placement(tokens, "encoder", None)
        states_BSD = self.encoder(tokens.ids_BS, placement, layer_states=layer_states)
        return EncodedSource(states_BSD, counted_BS, select_mask_of_new_tokens(tokens, 0), tokens.documents_BS)

    def rebuild_source(self, states_BTD: Float[Tensor, "B T D"], tokens: TokenBatch) -> EncodedSource:
        """Rebuild an encoded source from the encoder's last states [B, T, D]; ``tokens`` has its mask and positions.

        Raises PositionError for a mask that is too short.
        """
        mask_BT = select_mask_of_new_tokens(tokens, 0)
        return EncodedSource(states_BTD, count_positions(tokens), mask_BT, tokens.documents_BS)

    def decode(
        self,
        tokens: TokenBatch,
        source: EncodedSource | None = None,
        cache: KVCache | None = None,
        cross_cache: KVCache | None = None,
        layer_states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Compute the last states of the target tokens that are not cached yet, [B, S, D].

        An encoder-decoder needs a ``source``, and no other model takes one. ``cache`` and ``cross_cache`` are the KV
        caches of self-attention and of cross-attention, to which keys and values are added; with them, ``tokens`` has
        the ids of the S new tokens alone, and a mask over cached and new ones. The input of every layer and the last
        states are appended to ``layer_states`` if that is a list. Raises UsageError if there is no decoder, and for a
        source that is missing or that nothing reads; and PositionError where cached keys are stale or missing, for a
        mask that does not cover cached and new tokens, for packed documents after cached tokens, and for positions that
        a scheme does not take.
        """
        if self.decoder is None:
            raise UsageError("an encoder-only model has no decoder; call encode")
        if self.encoder is not None and source is None:
            raise UsageError("an encoder-decoder needs a source to decode: pass what encode returned as source")
        if self.encoder is None and source is not None:
            raise UsageError("a decoder-only model has no cross-attention that reads a source: pass no source")
        counted_BS, placement = self.make_self_placement(tokens, "decoder", cache)
        cross_placement = None if source is None else make_cross_placement(tokens, counted_BS, source)
        return self.decoder(tokens.ids_BS, placement, cache, source, cross_placement, cross_cache, layer_states)

    def make_self_placement(
        self, tokens: TokenBatch, side: StackSide, cache: KVCache | None
    ) -> tuple[QueryPositions, Placement]:
        """Return the positions of tokens as they are counted, [B, S], and the placement of their self-attention.

        The placement has the positions that the schemes read: the counted ones after the transform of the side. While
        a static cache is traced, the number of cached tokens is a tensor, and the mask is made over the whole cache.
        Raises PositionError where cached keys would be stale or missing, for a scheme with ``locate`` while a static
        cache is traced, and what ``count_positions`` raises.
        """
        stack = self.get_stack(side)
        past = count_cached_tokens(cache)
        length = past + tokens.ids_BS.shape[1] if cache is not None and isinstance(past, int) else None
        if cache is not None:
            stack.refuse_stale_cache(length)
            refuse_padding_after_tokens(cache, None if tokens.mask_BT is None else tokens.mask_BT[:, :length])
        counted_BS = count_positions(tokens, past)
        mask_BS = None if stack.transform is None else select_mask_of_new_tokens(tokens, past)
        pos = stack.transform_positions(counted_BS, mask_BS)
        if isinstance(past, int):
            return counted_BS, Placement(
                pos, pos, make_self_mask(tokens, past), causal=self.config.is_causal(side), length=length
            )
        if stack.schemes.has_locate:
            raise PositionError(
                f"{stack.position_config.name} computes positions from a layer's input, and cannot be traced with a "
                f"cache; pass use_cache=False, or do not compile the model"
            )
        capacity = 0 if cache is None else int(cache.layers[0].max_cache_len)
        return counted_BS, Placement(pos, pos, make_static_cache_mask(tokens, past, capacity))
