"""How one side of a model encodes position: a scheme with its options, and how it meets the token embedding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clockhands.errors import ConfigError, show_value
from clockhands.options import Count, check_options, options_of
from clockhands.positions import Transform, make_transform

__all__ = ["SINUSOIDAL", "PositionConfig"]


@dataclass(frozen=True)
class PositionConfig:
    """The configuration of the positional encoding of one side.

    Args:
        scheme: a name of the catalogue of schemes.
        options: the options of its constructor.
        combine: how the token embedding and the encoding that the scheme returns for it are combined: ``add``;
            ``concatenate`` (d_t + d_p = d_model); ``project`` (concatenate d_model + d_p channels, then a linear layer
            back to d_model).
        width: d_p, which ``concatenate`` and ``project`` need.
        every_layer: add the encoding again before every layer.
        skip_every: with n, every n-th layer has no position (iRoPE: 4); with 0, every layer has it.
        transform: a name of ``positions.TRANSFORMS``, which changes the positions before the scheme reads them; None:
            the scheme reads them as they are counted.
        transform_options: the options of the transform.
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
    def from_dict(cls, table: Any, origin: str = "position") -> PositionConfig:
        """Make a configuration from a scheme's name or a table; keys that are no field are options of the scheme.

        An example of a table is ``{"scheme": "rope", "base": 500.0}``. ``origin``: where it comes from, for messages.
        Raises ConfigError for values of a wrong type or out of range.
        """
        if isinstance(table, PositionConfig):
            return table
        if isinstance(table, str):
            return cls(scheme=table)
        if not isinstance(table, Mapping):
            raise ConfigError([f"{origin} is {show_value(table)}, but must be the name of a scheme or a table"], origin)
        tables = {name: table.get(name, {}) for name in ("options", "transform_options")}
        fields = {name: option for name, option in options_of(cls).items() if name not in tables}
        values, faults = check_options({key: table[key] for key in table if key in fields}, fields, origin)
        # The contents of the two tables are checked later, with their scheme and transform (find_position_faults).
        faults += [
            f"{origin}.{name} is {show_value(content)}, but must be a table"
            for name, content in tables.items()
            if not isinstance(content, Mapping)
        ]
        if faults:
            raise ConfigError(faults, origin)
        scheme_options = {key: value for key, value in table.items() if key not in (*fields, *tables)}
        return cls(
            options={**tables["options"], **scheme_options}, transform_options=tables["transform_options"], **values
        )

    def compute_encoding_width(self, d_model: int) -> int:
        """Return the width of the encoding at the embedding: d_model where it is added, else d_p."""
        return d_model if self.combine == "add" else (self.width or 0)

    def compute_token_width(self, d_model: int) -> int:
        """Return the width of the token embedding: d_t = d_model - d_p where the two are concatenated, else d_model."""
        return d_model - (self.width or 0) if self.combine == "concatenate" else d_model

    def make_transform(self) -> Transform | None:
        """Make the transform of positions, or return None if there is none. Raises ConfigError naming every fault."""
        return None if self.transform is None else make_transform(self.transform, self.transform_options)


SINUSOIDAL = PositionConfig("sinusoidal")
