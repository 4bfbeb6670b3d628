"""The configuration of a Transformer: plain data, validated as a whole; the defaults are those of the paper."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias, get_args

from clockhands.catalogue import Catalogue
from clockhands.errors import ConfigError, Fault, show_value
from clockhands.model.faults import (
    LARGEST_HEAD_WIDTH,
    LARGEST_NUM_HEADS,
    find_faults,
    find_position_faults,
    find_vocabulary_faults,
)
from clockhands.model.position_config import (
    SIDES,
    SIDES_BY_ARCHITECTURE,
    SINUSOIDAL,
    Architecture,
    PositionConfig,
    Side,
    StackSide,
)
from clockhands.model.side_schemes import BuiltSchemes, SchemeSummary, build_side, summarise_side
from clockhands.options import Positive, Range, Share
from clockhands.schemes import Sizes
from clockhands.settings import check_fields, settings

DropoutPlace = Literal["embedding", "residual", "ffn-residual", "attention", "activation"]
"""Where dropout may act; ``TransformerConfig`` says what each place is."""
DROPOUT_PLACES: tuple[DropoutPlace, ...] = get_args(DropoutPlace)
VocabularySize: TypeAlias = Annotated[int, Range(least=1, most=2**31 - 1)]
"""The number of tokens in a vocabulary."""
Width: TypeAlias = Annotated[int, Range(least=1, most=2**20)]
"""The width of the states, d_model."""
HeadCount: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_NUM_HEADS)]
"""The number of heads of queries, or of keys and values."""
HeadWidth: TypeAlias = Annotated[int, Range(least=1, most=LARGEST_HEAD_WIDTH)]
"""The width of one head, d_head."""
FeedForwardWidth: TypeAlias = Annotated[int, Range(least=1, most=2**22)]
"""The width inside a feed-forward layer."""
LayerCount: TypeAlias = Annotated[int, Range(least=0, most=2_000)]
"""The number of layers of a stack. The deepest published Transformer has 1,000 (Wang et al. 2022, DeepNet)."""
ExpertCount: TypeAlias = Annotated[int, Range(least=0, most=2**12)]
GroupCount: TypeAlias = Annotated[int, Range(least=1, most=2**12)]
DECIDE_SCHEMES = frozenset(
    ("kind", "d_model", "num_heads", "num_kv_heads", "head_dim", "encoder_layers", "decoder_layers", "causal_encoder")
)
"""Fields from which schemes are built: where one is wrong, schemes are not judged with its default in its place."""


@settings
class TransformerConfig:
    """A Transformer of "Attention Is All You Need" (Vaswani et al. 2017); the defaults are the paper's base model.

    Two defaults are not the paper's: ``vocab_size`` is smaller than its 37,000 tokens, and ``norm_eps`` is PyTorch's.
    Raises ConfigError, which lists all values of a wrong type or range, or else those that contradict each other.

    Args:
        kind: the architecture: ``encoder-decoder``, ``decoder`` (language model) or ``encoder`` (masked language
            model). Code reads it from the property ``architecture``.
        vocab_size: size of the vocabulary; in an encoder-decoder, of the target's, which the decoder reads and writes.
        source_vocab_size: size of the vocabulary that the encoder of an encoder-decoder reads; None: ``vocab_size``.
        d_model: width of the states.
        num_heads: heads of queries.
        num_kv_heads: heads of keys and values, each shared by a group of query heads; None: as many as ``num_heads``.
        head_dim: width of one head, d_head in formulas; None: d_model / num_heads.
        d_ff: width inside the feed-forward layers.
        encoder_layers, decoder_layers: number of layers of either stack.
        norm: ``post``: norm(x + f(x)), the paper; ``pre``: x + f(norm(x)); ``output``: x + norm(f(x)), as in OLMo 2 and
            3; ``sandwich``: x + norm(f(norm(x))), with two norms, as in Gemma 2 and 3.
        final_norm: whether a norm follows the last layer; None: only where norms are inside the residual connections.
        norm_kind: ``layer`` (layer norm) or ``rms`` (root mean square norm).
        norm_eps: added to the variance in every layer norm, or to the mean square in every root mean square norm; the
            norms of compressed states (``latent_width``) always add 1e-6.
        norm_bias: whether layer norms have a bias.
        embedding_norm: whether a norm follows the input layer, where tokens and encoding are combined, as in BLOOM.
        token_scale: factor of the token embedding: ``sqrt`` (√d_model), ``one`` or ``learned`` (starting at √d_model).
        tying: which embedding and output matrices are one: ``three-way`` (source, target, output), ``target`` (target,
            output), ``none``. With one stack, both of the former tie its token embedding and the output matrix.
        output_bias: whether the output layer has a bias for each token.
        output_transform: whether a linear layer, the activation and a norm come before the output matrix, as in BERT.
        output_scale: factor of the last states before the output matrix (T5 with tied embeddings: 1/√d_model).
        initialisation: ``paper`` (embeddings N(0, 1/d_model), matrices Xavier, as in the authors' Tensor2Tensor),
            ``xavier`` (embeddings too), ``normal02`` (all N(0, 0.02²)), ``unit`` (embeddings N(0, 1), PyTorch's
            default, matrices Xavier).
        query_key_norm: root mean square norm of queries and keys in self-attention, before they are rotated: ``none``;
            ``head``, of each head alone with one gain for all (Qwen 3, Gemma 3); ``joint``, of all heads together
            (OLMo 2 and 3).
        attention_bias: whether the projections of attention have biases; in self-attention with ``latent_width``, only
            those to compressed states, to shared channels of keys and to the output can have them.
        ffn_bias: whether the matrices of the feed-forward layers have biases.
        dropout: the rate at each of the ``dropout_places``.
        dropout_places: ``embedding`` (after tokens and encoding are added), ``residual`` (output of every sublayer),
            ``ffn-residual`` (output of the feed-forward layers only; ``residual`` implies it), ``attention`` (attention
            weights), ``activation`` (inside the feed-forward layers).
        activation: the function in the feed-forward layers, and in the ``output_transform``; with ``identity`` they are
            linear, or bilinear if ``gated``.
        gated: feed-forward layers compute W₂ (act(W_g x) * W₁ x) instead of W₂ act(W₁ x).
        attention_scale: factor of q·k (T5: 1); None: the scheme's own, 1/√d_head for most (DeBERTa: 1/√(3·d_head)).
        residual: whether the input of every sublayer is added to its output; off in experiments on what the residual
            connection carries.
        causal_encoder: whether the encoder has a causal mask; on in experiments on the position that a mask reveals.
        parallel: attention and feed-forward layer read the same x, and both are added to it (GPT-NeoX); needs ``pre``.
        encoder, decoder, cross: the positional encoding of each side, not the side itself; in the paper cross has none.
        first_norm: whether a norm precedes the attention of the first layer; off in ModernBERT, where that layer reads
            the normalised embedding. Off needs ``norm`` = ``pre`` or ``sandwich``, and layers that are not parallel.
        latent_width: keys and values of self-attention are projected from a state of so many channels with a norm of
            its own (multi-head latent attention, MLA; DeepSeek-AI 2024); None: from the layer's input. The KV cache
            holds keys and values of all heads, not that state.
        latent_query_width: the same for queries, with a state of their own; None: they are projected from the input.
        shared_key_dim: the first channels of a key that all heads share, projected from the layer's input: with
            ``latent_width``, the slice that a scheme rotates (decoupled RoPE).
        value_dim: width of a head's values with ``latent_width``; None: that of its keys.
        experts: number of feed-forward networks in a layer, of which each token is read by some; 0: one network reads
            all. Training adds no loss that divides the tokens evenly among them.
        experts_per_token: number of experts that read a token: those with the highest router logits, or with the
            router ``sigmoid`` those with the highest sums of sigmoid and constant in the chosen groups.
        expert_width: width inside an expert; None: ``d_ff``.
        expert_layers: the layers that have experts, counted from 0; None: all.
        shared_expert_width: width of a further network that reads all tokens beside the experts; 0: there is none.
        router: ``softmax`` (Mixtral, gpt-oss): outputs of the experts times the softmax of the chosen logits;
            ``sigmoid`` (DeepSeek-V3): times their sigmoids, which sum to ``router_scale``, and a constant for each
            expert is added before choosing; ``sigmoid-input`` (Llama 4): it multiplies the input of the expert.
        expert_groups: with the router ``sigmoid``, the experts are in so many groups of equal size, and a token's
            experts come from the ``expert_groups_per_token`` groups whose two best experts are the best together.
        expert_groups_per_token: number of groups from which the experts of a token come.
        router_scale: what the factors of a token's experts sum to with the router ``sigmoid``.
    """

    kind: Architecture = "encoder-decoder"
    vocab_size: VocabularySize = 8000
    source_vocab_size: VocabularySize | None = None
    d_model: Width = 512
    num_heads: HeadCount = 8
    num_kv_heads: HeadCount | None = None
    head_dim: HeadWidth | None = None
    d_ff: FeedForwardWidth = 2048
    encoder_layers: LayerCount = 6
    decoder_layers: LayerCount = 6
    norm: Literal["post", "pre", "output", "sandwich"] = "post"
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
    query_key_norm: Literal["none", "head", "joint"] = "none"
    attention_bias: bool = False
    ffn_bias: bool = True
    dropout: Share = 0.1
    dropout_places: tuple[DropoutPlace, ...] = ("embedding", "residual")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "clamped-silu", "identity"] = "relu"
    gated: bool = False
    attention_scale: float | None = None
    residual: bool = True
    causal_encoder: bool = False
    parallel: bool = False
    encoder: PositionConfig = SINUSOIDAL
    decoder: PositionConfig = SINUSOIDAL
    cross: PositionConfig = field(default_factory=PositionConfig)
    first_norm: bool = True
    latent_width: Width | None = None
    latent_query_width: Width | None = None
    shared_key_dim: Annotated[int, Range(least=0, most=LARGEST_HEAD_WIDTH)] = 0
    value_dim: HeadWidth | None = None
    experts: ExpertCount = 0
    experts_per_token: GroupCount = 1
    expert_width: FeedForwardWidth | None = None
    expert_layers: tuple[int, ...] | None = None
    shared_expert_width: Annotated[int, Range(least=0, most=2**22)] = 0
    router: Literal["softmax", "sigmoid", "sigmoid-input"] = "softmax"
    expert_groups: GroupCount = 1
    expert_groups_per_token: GroupCount = 1
    router_scale: Positive = 1.0

    @property
    def architecture(self) -> Architecture:
        """The architecture: the field ``kind``, whose name recipes and ``config.json`` share."""
        return self.kind

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that this architecture has: where attention is, and so where position can enter."""
        return SIDES_BY_ARCHITECTURE[self.architecture]

    @property
    def stack_sides(self) -> tuple[StackSide, ...]:
        """The sides that have a stack of layers: all but cross-attention."""
        return tuple(side for side in self.sides if side != "cross")

    @property
    def resolved_head_dim(self) -> int:
        """The width of one head: ``head_dim``, or d_model / num_heads where that is None."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def resolved_num_kv_heads(self) -> int:
        """The number of heads of keys and values: ``num_kv_heads``, or ``num_heads`` where that is None."""
        return self.num_kv_heads or self.num_heads

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last layer: ``final_norm``; where that is None, if ``norm`` is not ``post``."""
        return self.norm != "post" if self.final_norm is None else self.final_norm

    def get_dropout(self, place: DropoutPlace) -> float:
        """Return the dropout rate at a place; 0 where there is no dropout."""
        implied = place == "ffn-residual" and "residual" in self.dropout_places
        return self.dropout if implied or place in self.dropout_places else 0.0

    def get_position_config(self, side: Side) -> PositionConfig:
        """Return how a side encodes position."""
        position: PositionConfig = getattr(self, side)
        return position

    def count_layers(self, side: Side) -> int:
        """Return the number of layers of a side; cross-attention has the decoder's."""
        return self.encoder_layers if side == "encoder" else self.decoder_layers

    def get_vocabulary_size(self, side: StackSide) -> int:
        """Return the number of tokens in the vocabulary that a side reads."""
        reads_source = side == "encoder" and self.architecture == "encoder-decoder"
        return (self.source_vocab_size or self.vocab_size) if reads_source else self.vocab_size

    def is_causal(self, side: Side) -> bool:
        """Return whether the tokens of a side attend only to themselves and the tokens before them."""
        return side == "decoder" or (side == "encoder" and self.causal_encoder)

    def get_sizes(self, side: Side) -> Sizes:
        """Return the sizes of the model that the constructors of a side's schemes may ask for."""
        return Sizes(
            width=self.get_position_config(side).compute_encoding_width(self.d_model), d_model=self.d_model,
            num_heads=self.num_heads, head_dim=self.resolved_head_dim, num_layers=self.count_layers(side),
            causal=self.is_causal(side),
        )  # fmt: skip

    def has_experts(self, layer: int) -> bool:
        """Return whether the feed-forward layer of a layer, counted from 0, consists of experts."""
        return self.experts > 0 and (self.expert_layers is None or layer in self.expert_layers)

    ORIGIN = "the model"

    def find_faults(self) -> list[str]:
        """Return what contradicts each other, one sentence each: sizes, ties, schemes and where they act."""
        return find_faults(self, self.summarise_schemes)

    @classmethod
    def from_dict(
        cls,
        table: object,
        origin: str = "the model",
        *,
        prefix: str = "",
        noun: str = "option of the model",
        unknown: frozenset[str] = frozenset(),
    ) -> TransformerConfig:
        """Make a configuration from a table as in a recipe or a config.json; a side may be a name or a table.

        ``origin``, ``prefix`` and ``noun`` say in messages where the table comes from, what stands before a field's
        name, and what one is called. ``unknown``: fields whose values are not known to be right, so that nothing is
        said of what follows from them. Raises ConfigError naming every unknown key (with the nearest name) and every
        value that is not valid, and no fault that follows from another.
        """
        if not isinstance(table, Mapping):
            raise ConfigError([f"{origin} is {show_value(table)}, but must be a table"], origin)
        sides: dict[str, Any] = {}
        faults: list[str] = []
        for side in [side for side in SIDES if side in table]:
            try:
                sides[side] = PositionConfig.from_dict(table[side], side)
            except ConfigError as error:
                faults += error.faults
        values, wrong = check_fields(cls, {k: v for k, v in table.items() if k not in SIDES}, prefix, noun)
        faults = wrong + faults
        replaced = {fault.keys[0] for fault in wrong if isinstance(fault, Fault)} & table.keys() | unknown
        if replaced & DECIDE_SCHEMES:
            # What needs no sizes can be told of the schemes all the same.
            if "kind" not in replaced:
                faults += [f for s in SIDES_BY_ARCHITECTURE[values.get("kind", "encoder-decoder")] if s in sides
                           for f in find_position_faults(sides[s], s)]  # fmt: skip
            sides = {side: PositionConfig() for side in SIDES}
        try:
            config = cls(**values, **sides)
        except ConfigError as error:
            faults += [f for f in error.faults if not (isinstance(f, Fault) and replaced.intersection(f.keys))]
        if faults or replaced:
            raise ConfigError(faults, origin)
        return config

    def with_vocabularies(self, vocab_size: int, source_vocab_size: int | None) -> TransformerConfig:
        """Return the same configuration with vocabularies of other sizes.

        Only what depends on these sizes is checked: raises ConfigError if matrices that are tied would have different
        shapes.
        """
        # Not dataclasses.replace, which would validate everything again. The copy shares the summaries of the schemes,
        # which do not depend on a vocabulary.
        resized = copy.copy(self)
        resized.__dict__.update(vocab_size=vocab_size, source_vocab_size=source_vocab_size)
        faults = find_vocabulary_faults(resized)
        if faults:
            raise ConfigError(faults, "the model")
        return resized

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back, ready for JSON or TOML."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for side in SIDES:
            table[side] = table[side].to_dict()
        return {**table, "dropout_places": list(self.dropout_places)}

    def build_schemes(self, side: Side) -> BuiltSchemes:
        """Build all schemes of a side.

        Those of the architecture's sides are validated. Raises ConfigError for those of another side where they refuse
        the sizes or each other.
        """
        return build_side(self.get_position_config(side), self.count_layers(side), self.get_sizes(side))

    def summarise_schemes(self, side: Side) -> SchemeSummary:
        """Return the summary of a side's schemes, which the first call makes. Raises what ``summarise_side`` does."""
        if side not in self._summaries:
            position, layers = self.get_position_config(side), self.count_layers(side)
            self._summaries[side] = summarise_side(position, layers, self.get_sizes(side))
        return self._summaries[side]

    @cached_property
    def _summaries(self) -> dict[Side, SchemeSummary]:
        """The summaries of the schemes; no field, so that they are neither compared nor saved."""
        return {}


KEPT_CONFIGS = 64
"""Configurations that ``read_config`` keeps; one more and the oldest is dropped."""
_CONFIGS: dict[str, TransformerConfig] = {}


def read_config(table: Any, origin: str = "config.transformer") -> TransformerConfig:
    """Return the configuration of a table, validated once for all tables that are equal.

    transformers copies and reads a configuration many times. ``origin``: where the table comes from, for messages.
    Raises ConfigError.
    """
    try:
        key = json.dumps(table, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return TransformerConfig.from_dict(table, origin)  # not JSON, so from_dict says what is wrong
    if key not in _CONFIGS:
        keep_config(TransformerConfig.from_dict(table, origin), table)
    return _CONFIGS[key]


def keep_config(config: TransformerConfig, table: Any) -> None:
    """Keep a validated configuration under its table."""
    if len(_CONFIGS) >= KEPT_CONFIGS:
        del _CONFIGS[next(iter(_CONFIGS))]
    _CONFIGS[json.dumps(table, sort_keys=True)] = config


_TUTORIAL_POSITION = {"scheme": "sinusoidal", "layout": "half"}

PRESETS: Catalogue[dict[str, Any]] = Catalogue("preset", {
    # Vaswani et al. 2017, table 3, row "base", with a smaller vocabulary.
    "paper-base": {},
    # The TensorFlow tutorial's Portuguese-to-English model: heads as wide as the model, three separate matrices,
    # dropout on the attention weights and after the feed-forward layers but not after attention, Keras' epsilon.
    "tutorial": {
        "d_model": 128, "num_heads": 8, "head_dim": 128, "d_ff": 512, "encoder_layers": 4, "decoder_layers": 4,
        "norm_eps": 1e-3, "attention_bias": True, "tying": "none", "output_bias": True, "initialisation": "xavier",
        "dropout_places": ("embedding", "attention", "ffn-residual"),
        "encoder": _TUTORIAL_POSITION, "decoder": _TUTORIAL_POSITION,
    },
    # Small enough to train in seconds on a laptop: what the tour and the examples use.
    "tiny": {
        "d_model": 64, "num_heads": 4, "d_ff": 256, "encoder_layers": 2, "decoder_layers": 2, "norm": "pre",
        "dropout": 0.0,
    },
})  # fmt: skip


def make_preset(name: str, overrides: Mapping[str, Any] | None = None) -> TransformerConfig:
    """Make a configuration from the name of a preset and overrides of its fields.

    Raises UnknownNameError for an unknown preset, and ConfigError for overrides that are not valid.
    """
    return TransformerConfig.from_dict({**PRESETS[name], **(overrides or {})}, f"preset {name!r}")
