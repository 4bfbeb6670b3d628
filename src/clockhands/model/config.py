"""The configuration of a Transformer: plain data, validated as a whole; the defaults are those of the paper."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from clockhands.catalogue import Catalogue
from clockhands.errors import ConfigError, Fault, show_value
from clockhands.model.config_fields import SIDES, SIDES_BY_ARCHITECTURE, Side, TransformerFields
from clockhands.model.faults import find_faults, find_position_faults, find_vocabulary_faults
from clockhands.model.position_config import PositionConfig
from clockhands.model.side_schemes import BuiltSchemes, SchemeSummary, build_side, summarise_side
from clockhands.settings import check_fields, settings

DECIDE_SCHEMES = frozenset(
    ("kind", "d_model", "num_heads", "num_kv_heads", "head_dim", "encoder_layers", "decoder_layers", "causal_encoder")
)
"""Fields from which schemes are built: where one is wrong, schemes are not judged with its default in its place."""


@settings
class TransformerConfig(TransformerFields):
    """A Transformer of "Attention Is All You Need" (Vaswani et al. 2017); the defaults are the paper's base model.

    Two defaults are not the paper's: ``vocab_size`` is smaller than its 37,000 tokens, and ``norm_eps`` is PyTorch's.
    Raises ConfigError, which lists all values of a wrong type or range, or else those that contradict each other.

    The fields are described in ``TransformerFields``.
    """

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
