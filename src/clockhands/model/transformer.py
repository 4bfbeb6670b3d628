"""The Transformer: stacks of layers over input layers, encoder-decoder, decoder-only or encoder-only."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import nn

from clockhands import positions
from clockhands.errors import PositionError
from clockhands.model.attention import Fused, Look
from clockhands.model.block import Block
from clockhands.model.config import Side, TransformerConfig
from clockhands.model.input import InputLayer, make_norm
from clockhands.model.memory import KeyCache
from clockhands.model.output import Output
from clockhands.model.sight import Encoded, Sight, Text, across, counted, up_to_now, within
from clockhands.schemes import NoPosition, Scheme
from clockhands.schemes.frequencies import one_row
from clockhands.schemes.scheme import Positions
from clockhands.shapes import Bool, Float, Int, Tensor


class Schemes(nn.ModuleList):
    """The schemes of one side: one for all layers, or one for each where a scheme has tables of a layer."""

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        first = config.scheme(side)
        count = config.layers(side) if first.per_layer else 1
        super().__init__([first, *(config.scheme(side) for _ in range(count - 1))])
        self.skip_every = config.position(side).skip_every
        self.axes = first.declares.axes
        self.places = "locate" in first.active_hooks()
        self._nothing = (NoPosition(),)

    def of(self, layer: int) -> Scheme:
        """The scheme of a layer; every ``skip_every``-th layer goes without position."""
        if self.skip_every and (layer + 1) % self.skip_every == 0:
            return self._nothing[0]
        scheme = self[layer if len(self) > 1 else 0]
        assert isinstance(scheme, Scheme)
        return scheme


class Stack(nn.Module):
    """The encoder or the decoder: input layer, layers, and a last norm if the configuration has one."""

    def __init__(self, config: TransformerConfig, side: Side) -> None:
        super().__init__()
        self.position = config.position(side)
        self.input = InputLayer(config, side)
        self.schemes = Schemes(config, side)
        self.transform = self.position.make_transform()
        self.blocks = nn.ModuleList(Block(config, side) for _ in range(config.layers(side)))
        last = config.norm == "pre" if config.final_norm is None else config.final_norm
        self.norm = make_norm(config) if last else None

    @cached_property
    def moves_words(self) -> tuple[str, int] | None:
        """The transform or the scheme under which a new word changes what earlier ones are, and the length of text from
        which on it does. None: what was computed once stays, and keys can be kept.

        Keys that are turned again at every step are right in the last layer alone, whose states nobody reads.
        """
        if self.transform is not None and self.transform.depends_on_length:
            return str(self.position.transform), 0
        below = [self.schemes.of(layer) for layer in range(len(self.blocks) - 1)]
        moving = [scheme for scheme in below if scheme.declares.depends_on_length]
        first = self.schemes.of(0)
        if first.declares.depends_on_length and "encode" in first.active_hooks():
            moving.append(first)
        return (self.position.scheme, min(one.declares.steady_length for one in moving)) if moving else None

    def placed(self, pos_BS: Positions, mask_BS: Bool[Tensor, "B S"] | None) -> Positions:
        """Counted positions as the schemes of this stack read them: transformed, on all axes that they ask for."""
        if self.transform is not None:
            pos_BS = self.transform(pos_BS, mask_BS, training=self.training)
        axes = self.schemes.axes
        return pos_BS if pos_BS.dim() > 2 or axes is None or axes == 1 else positions.text_axes(pos_BS, axes)

    def forward(
        self,
        ids_BS: Int[Tensor, "B S"],
        sight: Sight,
        cache: KeyCache | None = None,
        source: Encoded | None = None,
        beyond: Sight | None = None,
        cross_schemes: Schemes | None = None,
        cross_cache: KeyCache | None = None,
        states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """The last states; every layer's input is appended to ``states`` if that is a list."""
        first = self.schemes[0]
        assert isinstance(first, Scheme)
        x = self.input(ids_BS, first.encode(one_row(sight.qpos_BS)))
        for layer, block in enumerate(self.blocks):
            scheme = self.schemes.of(layer)
            x = self.add_again(x, scheme, sight.qpos_BS, layer)
            if states is not None:
                states.append(x)
            look_across = None
            if beyond is not None and cross_schemes is not None:
                look_across = Look(cross_schemes.of(layer), beyond, cross_cache, layer)
            memory = None if source is None else source.states_BTD
            x = block(x, Look(scheme, sight, cache, layer), memory, look_across)
        x = x if self.norm is None else self.norm(x)
        if states is not None:
            states.append(x)
        return x

    def add_again(
        self, x_BSD: Float[Tensor, "B S D"], scheme: Scheme, pos_BS: Positions, layer: int
    ) -> Float[Tensor, "B S D"]:
        """The encoding once more, before every layer but the first, if asked."""
        if not self.position.every_layer or layer == 0:
            return x_BSD
        encoding_BSD = scheme.encode(pos_BS, layer)
        return x_BSD if encoding_BSD is None else x_BSD + encoding_BSD.to(x_BSD.dtype)


class Transformer(nn.Module):
    """The whole model without a loss. ``forward`` gives the last states; ``output`` turns them into logits."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Stack(config, "encoder") if "encoder" in config.sides else None
        self.decoder = Stack(config, "decoder") if "decoder" in config.sides else None
        self.cross_schemes = Schemes(config, "cross") if "cross" in config.sides else None
        self.output = Output(config)
        self.initialise()
        self.tie()

    @property
    def writer(self) -> Stack:
        """The stack whose states become logits."""
        stack = self.decoder or self.encoder
        assert stack is not None
        return stack

    def tied(self) -> dict[str, str]:
        """Names of parameters that are another one: {name: the one it is}."""
        if self.config.tying == "none":
            return {}
        side = "decoder" if self.decoder is not None else "encoder"
        one = f"{side}.input.tokens.weight"
        both = {"output.weight": one}
        if self.config.tying == "three-way" and self.encoder is not None and self.decoder is not None:
            both["encoder.input.tokens.weight"] = one
        return both

    def tie(self) -> None:
        """Make the tied matrices one."""
        for name, source in self.tied().items():
            owner, _, attribute = name.rpartition(".")
            setattr(self.get_submodule(owner), attribute, self.get_parameter(source))

    @torch.no_grad()
    def initialise(self) -> None:
        """Draw all parameters; schemes have drawn theirs at construction."""
        schemes = [module for module in self.modules() if isinstance(module, Scheme)]
        theirs = {id(part) for scheme in schemes for part in scheme.modules()}
        # A tied output drawn after the embedding would overwrite it by Xavier's law.
        tied = {name.rpartition(".")[0] for name in self.tied()}
        for name, module in self.named_modules():
            if id(module) in theirs:
                continue
            if name in tied:
                zero_bias(module)
                continue
            if isinstance(module, nn.Embedding):
                initialise_embedding(module, self.config)
            elif isinstance(module, nn.Linear):
                initialise_linear(module, self.config)

    @torch.no_grad()
    def restore_tables(self) -> None:
        """Lay the schemes' fixed tables again: no checkpoint holds them, and loading begins on the meta device."""
        owners = {"encoder": self.encoder, "decoder": self.decoder}
        for side in self.config.sides:
            owner = owners.get(side)
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                fresh = self.config.scheme(side)
            for scheme in (self.cross_schemes if owner is None else owner.schemes) or ():
                copy_tables(fresh, scheme)

    def encode(self, text: Text, states: list[Tensor] | None = None) -> Encoded:
        """Read a source."""
        assert self.encoder is not None, "a decoder alone has no encoder"
        plain, sight = self.own_sight(text, "encoder", None)
        x = self.encoder(text.ids_BS, sight, states=states)
        return Encoded(x, plain, text.mask_BT, text.documents_BS)

    def reread(self, states_BTD: Float[Tensor, "B T D"], text: Text) -> Encoded:
        """A source that was read before, from the encoder's last states; ``text`` says where its words stand."""
        return Encoded(states_BTD, counted(text), text.mask_BT, text.documents_BS)

    def decode(
        self,
        text: Text,
        source: Encoded | None = None,
        cache: KeyCache | None = None,
        cross_cache: KeyCache | None = None,
        states: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """States of the words written so far, given what was read; cached words are not read again."""
        assert self.decoder is not None, "an encoder alone has no decoder"
        plain, sight = self.own_sight(text, "decoder", cache)
        beyond = None if source is None else across(text, plain, source)
        return self.decoder(text.ids_BS, sight, cache, source, beyond, self.cross_schemes, cross_cache, states)

    def own_sight(self, text: Text, side: Side, cache: KeyCache | None) -> tuple[Positions, Sight]:
        """Positions as counted, and the self-attention's sight with the positions that its schemes read."""
        stack = self.encoder if side == "encoder" else self.decoder
        assert stack is not None
        past = past_words(cache)
        if cache is not None and stack.moves_words:
            name, steady = stack.moves_words
            if not isinstance(past, int) or past + text.ids_BS.shape[1] > steady:
                beyond = f"beyond {steady} words " if steady else ""
                raise PositionError(
                    f"under {name} the positions of earlier words change {beyond}when a word is added, so their keys "
                    f"cannot be kept; generate with use_cache=False, or set its options against it"
                )
        plain = counted(text, past)
        own = None if text.mask_BT is None else text.mask_BT[:, : text.ids_BS.shape[1]]
        seen = stack.placed(plain, own)
        if isinstance(past, int):
            length = None if cache is None else past + text.ids_BS.shape[1]
            return plain, Sight(seen, seen, within(text, past), causal=self.config.causal(side), length=length)
        if stack.schemes.places:
            raise PositionError(f"{stack.position.scheme} places its tokens itself and cannot be traced over a cache")
        return plain, Sight(seen, seen, up_to_now(text, past, capacity(cache)))


def past_words(cache: KeyCache | None) -> int | Tensor:
    """How many words a cache holds: a number, and a tensor only where tracing needs one."""
    past = 0 if cache is None else cache.get_seq_length()
    return past if isinstance(past, int) or torch.compiler.is_compiling() else int(past)


def capacity(cache: KeyCache | None) -> int:
    """The length of a cache of fixed size."""
    assert cache is not None, "only a cache holds a number of words that is not known"
    return int(cache.layers[0].max_cache_len)


def copy_tables(fresh: nn.Module, scheme: nn.Module) -> None:
    """Put one scheme's buffers that are not saved in place of another's, on the device of the other."""
    for path, module in fresh.named_modules():
        target = scheme.get_submodule(path)
        for name in module._non_persistent_buffers_set:
            table, old = getattr(module, name), getattr(target, name)
            setattr(target, name, None if table is None else table.to(old.device, copy=True))


def initialise_embedding(module: nn.Embedding, config: TransformerConfig) -> None:
    """N(0, 1/d_model), so that words times √d_model have channels of variance 1; or as ``initialisation`` says."""
    if config.initialisation == "xavier":
        nn.init.xavier_uniform_(module.weight)
    else:
        spread = {"normal02": 0.02, "unit": 1.0}.get(config.initialisation, config.d_model**-0.5)
        nn.init.normal_(module.weight, std=spread)


@torch.no_grad()
def zero_bias(module: nn.Module) -> None:
    """Biases begin at zero, also that beside a tied matrix, which is drawn where it is owned."""
    bias = getattr(module, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.zeros_(bias)  # transformers keeps torch.nn.init away from what a checkpoint has filled


def initialise_linear(module: nn.Linear, config: TransformerConfig) -> None:
    """Xavier, uniform, each projection by its own shape even where several are fused; or N(0, 0.02)."""
    if config.initialisation == "normal02":
        nn.init.normal_(module.weight, std=0.02)
    else:
        rows = module.parts[0] if isinstance(module, Fused) else module.out_features
        bound = math.sqrt(6 / (module.in_features + rows))
        nn.init.uniform_(module.weight, -bound, bound)
    zero_bias(module)
