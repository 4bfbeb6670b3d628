"""The configuration of a Transformer: plain data, validated as a whole; the defaults are those of the paper."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from clockhands.errors import ConfigError, show_value
from clockhands.model.config_fields import TransformerFields
from clockhands.model.config_types import Side
from clockhands.model.faults import find_faults, find_vocabulary_faults
from clockhands.model.layer_schemes import BuiltSchemes
from clockhands.model.position_config import PositionConfig
from clockhands.model.position_faults import find_position_faults_without_sizes
from clockhands.model.scheme_factory import SchemeFactory
from clockhands.model.scheme_summary import SchemeSummary
from clockhands.options import check_options, options_of

__all__ = ["TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig(TransformerFields):
    """A Transformer of "Attention Is All You Need" (Vaswani et al. 2017); the defaults are the paper's base model.

    Two defaults are not the paper's: ``vocab_size`` is smaller than its 37,000 tokens, and ``norm_eps`` is PyTorch's.
    The fields are described in ``TransformerFields``, and further ones, which known models need, in ``LayerOptions``.

    Raises ConfigError, which lists all values of a wrong type or range, or else those that contradict each other.
    """

    def __post_init__(self) -> None:
        faults = find_faults(self, self._scheme_factory)
        if faults:
            raise ConfigError(faults, "the model")

    @classmethod
    def from_dict(cls, table: object, origin: str = "the model") -> TransformerConfig:
        """Make a configuration from a table as in a recipe or a config.json; a side may be a name or a table.

        ``origin``: where the table comes from, for messages. Raises ConfigError naming every unknown key (with the
        nearest name) and every value that is not valid.
        """
        if not isinstance(table, Mapping):
            raise ConfigError([f"{origin} is {show_value(table)}, but must be a table"], origin)
        options = {name: option for name, option in options_of(cls).items() if name not in get_args(Side)}
        without_sides = {key: value for key, value in table.items() if key not in get_args(Side)}
        values, faults = check_options(without_sides, options, "the model", prefix="")
        for side in get_args(Side):
            try:
                values |= {side: PositionConfig.from_dict(table[side], side)} if side in table else {}
            except ConfigError as error:
                faults += error.faults
        # Without a valid value for every field nothing can be constructed, but some other faults can be found.
        if any(key in options_of(cls) and key not in values for key in table):
            raise ConfigError(faults + find_position_faults_without_sizes(table, values), origin)
        try:
            config = cls(**values)
        except ConfigError as error:
            raise ConfigError(faults + list(error.faults), origin) from error
        if faults:
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
        for side in get_args(Side):
            table[side] = table[side].to_dict()
        return {**table, "dropout_places": list(self.dropout_places)}

    def build_schemes(self, side: Side) -> BuiltSchemes:
        """Build all schemes of a side.

        Those of the architecture's sides are validated. Raises ConfigError for those of another side where they refuse
        the sizes or each other.
        """
        return self._scheme_factory.build(self, side)

    def summarise_schemes(self, side: Side) -> SchemeSummary:
        """Return the summary of a side's schemes. Raises ConfigError as ``build_schemes``."""
        return self._scheme_factory.summarise(self, side)

    @cached_property
    def _scheme_factory(self) -> SchemeFactory:
        """The factory that builds the schemes of this configuration and keeps their summaries.

        It is no field, so that it is neither compared nor saved.
        """
        return SchemeFactory()
