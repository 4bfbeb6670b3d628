"""What a Transformer is made of: plain data, validated whole, with the paper's value as every default."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, get_args

from clockhands.errors import ConfigError, show_value
from clockhands.model.outline import Outline, SpareSchemes, build_probe
from clockhands.options import Count, Positive, Range, Share, check_options, options_of
from clockhands.positions import Transform, make_transform
from clockhands.schemes import CATALOGUE, Scheme, Sizes, construct

__all__ = [
    "DROPOUT_PLACES",
    "LARGEST_HEAD",
    "SIDES_OF",
    "SINUSOIDAL",
    "Architecture",
    "DropoutPlace",
    "HeadWidth",
    "Heads",
    "Layers",
    "Position",
    "Side",
    "TransformerConfig",
    "Vocabulary",
    "Width",
]

Architecture = Literal["encoder-decoder", "decoder", "encoder"]
Side = Literal["encoder", "decoder", "cross"]
SIDES_OF: dict[Architecture, tuple[Side, ...]] = {
    "encoder-decoder": ("encoder", "decoder", "cross"),
    "decoder": ("decoder",),
    "encoder": ("encoder",),
}
DropoutPlace = Literal["embedding", "residual", "ffn-residual", "attention", "activation"]
DROPOUT_PLACES: tuple[DropoutPlace, ...] = get_args(DropoutPlace)

# The largest sizes that are taken at all, on any machine: each is more than that of every model known.
LARGEST_HEAD = 2**17
Vocabulary: TypeAlias = Annotated[int, Range(least=1, most=2**31 - 1)]
Width: TypeAlias = Annotated[int, Range(least=1, most=2**20)]
Heads: TypeAlias = Annotated[int, Range(least=1, most=2**16)]
HeadWidth: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_HEAD)]
Layers: TypeAlias = Annotated[int, Range(least=0, most=2_000)]
"""The deepest model published has 1,000 layers (Wang et al. 2022, DeepNet); more than 2,000 take longer to build than
anybody waits."""


@dataclass(frozen=True)
class Position:
    """The configuration of the positional encoding of one side.

    ``scheme`` and ``options``: a name of the catalogue and the options of its constructor. ``combine``: how what it
    gives at the token embedding meets the tokens: ``add``; ``concatenate`` (d_t + d_p = d_model); ``project``
    (concatenate d_model + d_p channels, then a linear layer back to d_model). ``width``: d_p, which the last two need.
    ``every_layer``: add the encoding again before every layer. ``skip_every``: n lets every n-th layer go without
    position (iRoPE: 4); 0 lets none. ``transform`` and ``transform_options``: a name of ``positions.TRANSFORMS`` and
    its options, what is done to the positions first; None: nothing.
    """

    scheme: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    combine: Literal["add", "concatenate", "project"] = "add"
    width: Count | None = None
    every_layer: bool = False
    skip_every: int = 0
    transform: str | None = None
    transform_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, table: Any, side: str = "position") -> Position:
        """Make a position from a scheme's name, or from a table; keys that are no field are options of the scheme.

        ``{"scheme": "rope", "base": 500.0}`` is one. Raises ConfigError for values of a wrong type or out of range.
        """
        if isinstance(table, Position):
            return table
        if isinstance(table, str):
            return cls(scheme=table)
        if not isinstance(table, Mapping):
            raise ConfigError([f"{side} is {show_value(table)}, but must be the name of a scheme or a table"], side)
        own = {name: option for name, option in options_of(cls).items() if name not in ("options", "transform_options")}
        tables = {name: table.get(name, {}) for name in ("options", "transform_options")}
        values, wrong = check_options({key: table[key] for key in table if key in own}, own, side)
        # The contents of the two tables are checked later, with their scheme and transform (``position_faults``).
        wrong += [
            f"{side}.{name} is {show_value(inner)}, but must be a table"
            for name, inner in tables.items()
            if not isinstance(inner, Mapping)
        ]
        if wrong:
            raise ConfigError(wrong, side)
        scheme_options = {key: value for key, value in table.items() if key not in (*own, *tables)}
        return cls(
            options={**tables["options"], **scheme_options}, transform_options=tables["transform_options"], **values
        )

    def encoding_width(self, d_model: int) -> int:
        """Return the width of what the scheme adds at the embedding: d_model where it is added, else d_p."""
        return d_model if self.combine == "add" else (self.width or 0)

    def token_width(self, d_model: int) -> int:
        """Return the width of the token embedding, d_t: what concatenation leaves to the tokens."""
        return d_model - (self.width or 0) if self.combine == "concatenate" else d_model

    def make_transform(self) -> Transform | None:
        """Make the transform of positions, or return None if there is none. Raises ConfigError naming every fault."""
        return None if self.transform is None else make_transform(self.transform, self.transform_options)


SINUSOIDAL = Position("sinusoidal")


@dataclass(frozen=True)
class TransformerConfig:
    """A Transformer of "Attention Is All You Need" (Vaswani et al. 2017); the defaults are the paper's base model.

    Args:
        kind: ``encoder-decoder``, ``decoder`` (language model) or ``encoder`` (masked language model).
        vocab_size: size of the target vocabulary, the only one without an encoder-decoder.
        source_vocab_size: size of the vocabulary that the encoder of an encoder-decoder reads; None: the same one.
        num_kv_heads: heads of keys and values, each shared by a group of queries; None: as many as ``num_heads``.
        head_dim: d_head; None: d_model / num_heads.
        norm: ``post``: norm(x + f(x)), the paper; ``pre``: x + f(norm(x)).
        final_norm: a norm after the last layer; None: only with ``pre``.
        norm_kind, norm_eps, norm_bias: layer norm or root mean square norm.
        embedding_norm: a norm after the token embedding, as in BLOOM.
        token_scale: factor of the token embedding: ``sqrt`` (√d_model), ``one`` or ``learned`` (starting at √d_model).
        tying: which embedding and output matrices are one: ``three-way`` (source, target, output), ``target`` (target,
            output), ``none``.
        output_bias: a bias for each token of the output layer.
        output_transform: a layer, the activation and a norm before the output matrix, as BERT's masked models have it.
        output_scale: factor of the last states before the output matrix (T5 with tied embeddings: 1/√d_model).
        initialisation: ``paper`` (embeddings N(0, 1/d), matrices Xavier), ``xavier`` (embeddings too), ``normal02``
            (all N(0, 0.02²)), ``unit`` (embeddings N(0, 1), PyTorch's default, matrices Xavier).
        attention_bias, ffn_bias: biases of the projections of attention and of the feed-forward layers.
        dropout: the rate, at the ``dropout_places``: ``embedding`` (after the sum), ``residual`` (output of every
            sublayer), ``ffn-residual`` (of the feed-forward only; ``residual`` implies it), ``attention`` (weights),
            ``activation``.
        activation, gated: of the feed-forward layers; gated: act(W_g x) * W_u x.
        attention_scale: factor of q·k (T5: 1); None: the scheme's own, 1/√d_head for most (DeBERTa: 1/√(3·d_head)).
        residual: whether sublayers add to their input (off: to see what the connection carries).
        causal_encoder: whether tokens of the encoder attend only to the tokens before them (to see what a mask tells).
        parallel: attention and feed-forward read the same x and are added together (GPT-NeoX); needs ``pre``.
        encoder, decoder, cross: the positional encoding of each side, not the side itself; the paper has none in
            cross-attention.
    """

    kind: Architecture = "encoder-decoder"
    vocab_size: Vocabulary = 8000
    source_vocab_size: Vocabulary | None = None
    d_model: Width = 512
    num_heads: Heads = 8
    num_kv_heads: Heads | None = None
    head_dim: HeadWidth | None = None
    d_ff: Annotated[int, Range(least=1, most=2**22)] = 2048
    encoder_layers: Layers = 6
    decoder_layers: Layers = 6
    norm: Literal["post", "pre"] = "post"
    final_norm: bool | None = None
    norm_kind: Literal["layer", "rms"] = "layer"
    norm_eps: Annotated[float, Range(above=0, below=1)] = 1e-5
    norm_bias: bool = True
    embedding_norm: bool = False
    token_scale: Literal["sqrt", "one", "learned"] = "sqrt"
    tying: Literal["three-way", "target", "none"] = "three-way"
    output_bias: bool = False
    output_transform: bool = False
    output_scale: Positive = 1.0
    initialisation: Literal["paper", "xavier", "normal02", "unit"] = "paper"
    attention_bias: bool = False
    ffn_bias: bool = True
    dropout: Share = 0.1
    dropout_places: tuple[DropoutPlace, ...] = ("embedding", "residual")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    gated: bool = False
    attention_scale: float | None = None
    residual: bool = True
    causal_encoder: bool = False
    parallel: bool = False
    encoder: Position = SINUSOIDAL
    decoder: Position = SINUSOIDAL
    cross: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        from clockhands.model.faults import faults

        wrong = faults(self)
        if wrong:
            raise ConfigError(wrong, "the model")

    @classmethod
    def from_dict(cls, table: Any, source: str = "the model") -> TransformerConfig:
        """Make a configuration from a table as in a recipe or a config.json; a side may be a name or a table.

        Raises ConfigError naming every unknown key (with the nearest name) and every value that cannot be.
        """
        from clockhands.model.faults import position_faults_without_sizes

        if not isinstance(table, Mapping):
            raise ConfigError([f"{source} is {show_value(table)}, but must be a table"], source)
        known = {name: option for name, option in options_of(cls).items() if name not in get_args(Side)}
        own = {key: value for key, value in table.items() if key not in get_args(Side)}
        values, wrong = check_options(own, known, "the model", prefix="")
        for side in get_args(Side):
            try:
                values |= {side: Position.from_dict(table[side], side)} if side in table else {}
            except ConfigError as fault:
                wrong += fault.faults
        if any(key in options_of(cls) and key not in values for key in table):
            raise ConfigError(wrong + position_faults_without_sizes(table, values), source)
        try:
            config = cls(**values)
        except ConfigError as fault:
            raise ConfigError(wrong + list(fault.faults), source) from fault
        if wrong:
            raise ConfigError(wrong, source)
        return config

    def with_vocabularies(self, vocab_size: int, source_vocab_size: int | None) -> TransformerConfig:
        """Return the same model with other vocabularies. Only what depends on them is checked; raises ConfigError."""
        from clockhands.model.faults import vocabulary_faults

        other = copy.copy(self)
        # Not dataclasses.replace, which would validate the whole again. The copy shares the outlines of the schemes,
        # which do not depend on a vocabulary.
        other.__dict__.update(vocab_size=vocab_size, source_vocab_size=source_vocab_size)
        wrong = vocabulary_faults(other)
        if wrong:
            raise ConfigError(wrong, "the model")
        return other

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back, ready for JSON or TOML."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for side in ("encoder", "decoder", "cross"):
            table[side] = {f.name: getattr(table[side], f.name) for f in dataclasses.fields(Position)}
            table[side]["options"] = dict(table[side]["options"])
            table[side]["transform_options"] = dict(table[side]["transform_options"])
        return {**table, "dropout_places": list(self.dropout_places)}

    @property
    def sides(self) -> tuple[Side, ...]:
        """The attentions that this architecture has."""
        return SIDES_OF[self.kind]

    @property
    def d_head(self) -> int:
        """The width of one head: ``head_dim``, or d_model / num_heads."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last layer: ``final_norm``, or if that is None, only with ``norm = "pre"``."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    def has_cross_attention(self, side: Side) -> bool:
        """Return whether the layers of a side attend to the source: those of the decoder of an encoder-decoder."""
        return side == "decoder" and "cross" in self.sides

    def rate(self, place: DropoutPlace) -> float:
        """Return the dropout rate at a place; 0 where it does not act."""
        implied = place == "ffn-residual" and "residual" in self.dropout_places
        return self.dropout if implied or place in self.dropout_places else 0.0

    def position(self, side: Side) -> Position:
        """Return how a side gets position."""
        chosen: Position = getattr(self, side)
        return chosen

    def layers(self, side: Side) -> int:
        """Return the number of layers of a side; cross-attention has the decoder's."""
        return self.encoder_layers if side == "encoder" else self.decoder_layers

    def vocabulary(self, side: Side) -> int:
        """Return the number of tokens in the vocabulary of a side."""
        reads_source = side == "encoder" and self.kind == "encoder-decoder"
        return (self.source_vocab_size or self.vocab_size) if reads_source else self.vocab_size

    def causal(self, side: Side) -> bool:
        """Return whether the tokens of a side attend only to the tokens before them."""
        return side == "decoder" or (side == "encoder" and self.causal_encoder)

    def sizes(self, side: Side) -> Sizes:
        """Return what the constructors of a side's schemes are told about the model."""
        return Sizes(
            width=self.position(side).encoding_width(self.d_model),
            d_model=self.d_model,
            num_heads=self.num_heads,
            head_dim=self.d_head,
            num_layers=self.layers(side),
            causal=self.causal(side),
        )

    def scheme(self, side: Side) -> Scheme:
        """Return a new instance of a side's scheme; the first may be the one that validation looked at."""
        return self._spare_schemes.take(side) or self.build_scheme(side)

    def build_scheme(self, side: Side) -> Scheme:
        """Build an instance of a side's scheme. Raises ConfigError where the scheme refuses these sizes."""
        position = self.position(side)
        return construct(CATALOGUE, position.scheme, self.sizes(side), position.options)

    def outline(self, side: Side) -> Outline:
        """Return what a side's scheme is, built once to be looked at. Raises ConfigError where it refuses its sizes."""
        if side not in self._outlines:
            scheme = build_probe(self, side)
            self._outlines[side] = Outline.of(scheme)
            self._spare_schemes.keep(side, scheme)
        return self._outlines[side]

    @cached_property
    def _spare_schemes(self) -> SpareSchemes:
        return SpareSchemes()

    @cached_property
    def _outlines(self) -> dict[Side, Outline]:
        return {}
