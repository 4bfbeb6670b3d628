"""The sides of a model, and how one encodes position: a scheme with its options, and how it joins the tokens."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias, get_args

from clockhands.errors import ConfigError, show_value
from clockhands.options import Count, options_of, split_outside
from clockhands.positions import Transform, make_transform
from clockhands.schemes import read_part
from clockhands.schemes.position_presets import POSITION_PRESETS
from clockhands.settings import check_fields, settings

Architecture = Literal["encoder-decoder", "decoder", "encoder"]
"""Which stacks of layers a model has."""
Side = Literal["encoder", "decoder", "cross"]
"""Where attention is, and so where position can enter; ``cross`` is cross-attention."""
SIDES: tuple[Side, ...] = get_args(Side)
StackSide = Literal["encoder", "decoder"]
"""The sides that have a stack of layers. Cross-attention has none of its own: it is in the decoder's layers."""
SIDES_BY_ARCHITECTURE: dict[Architecture, tuple[Side, ...]] = {
    "encoder-decoder": ("encoder", "decoder", "cross"),
    "decoder": ("decoder",),
    "encoder": ("encoder",),
}
LayerEntry: TypeAlias = str | Mapping[str, Any]
"""What one layer has: a scheme's name or table, a table ``{schemes = [...]}``, or the name of an entry of ``kinds``."""

ELLIPSIS = "..."
"""A last entry of ``layers`` that is no layer: with it, the last repetition of the pattern may be cut, or the only one.

A pattern repeats with and without it.
"""


@settings
class PositionConfig:
    """The configuration of the positional encoding of one side.

    It checks the types of its fields; which of their values are valid depends on the side and on the sizes of the
    model, and the ``TransformerConfig`` that contains it checks that.

    Args:
        scheme: a name of the catalogue of schemes.
        options: the options of its constructor.
        combine: how the token embedding and the encoding that the scheme returns for it are combined: ``add``;
            ``concatenate`` (d_t + d_p = d_model); ``project`` (concatenate d_model + d_p channels, then a linear layer
            back to d_model).
        width: d_p, which ``concatenate`` and ``project`` need.
        every_layer: add the encoding again before every layer.
        skip_every: with n, every n-th layer has no position (iRoPE: 4); with 0, every layer has it.
        layers: what layers have besides ``scheme``, which all of them have: an entry for each layer, or a pattern that
            repeats, and that may be cut at the last layer if it ends with "...": a model of fewer layers has the first
            entries. An entry is a scheme's name, a table of a name and options, a table ``{schemes = [...]}``, or the
            name of one of ``kinds``.
        kinds: names for such entries. With ``{"local": {"schemes": ["rope", "window"]}}``, "local" is an entry that
            ``layers`` may have.
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
    layers: Sequence[LayerEntry] | None = None
    kinds: Mapping[str, Any] = field(default_factory=dict)
    transform: str | None = None
    transform_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, table: object, origin: str = "position") -> PositionConfig:
        """Make a configuration from a scheme's name or a table; keys that are not fields are the scheme's options.

        An example of a table is ``{"scheme": "rope", "base": 500.0}``. ``preset`` names a table of
        ``POSITION_PRESETS``, in which other keys replace its own. Without ``scheme``, ``schemes`` are the parts of a
        composition. ``origin``: where the table comes from, for messages. A ``PositionConfig`` is
        returned as it is. Raises ConfigError for values of a wrong type or out of range, and for an unknown preset.
        """
        if isinstance(table, PositionConfig):
            return table
        if isinstance(table, str):
            table = {"scheme": table}
        if not isinstance(table, Mapping):
            raise ConfigError([f"{origin} is {show_value(table)}, but must be the name of a scheme or a table"], origin)
        table = spell_out_short_forms(table)
        if "preset" in table:
            raise ConfigError([f"{origin}.preset: {POSITION_PRESETS.describe_unknown_name(table['preset'])}"], origin)
        own = options_of(cls)
        scheme_options = {key: value for key, value in table.items() if key not in own}
        fields = {key: value for key, value in table.items() if key in own}
        values, faults = check_fields(cls, fields, f"{origin}.")
        if faults:
            raise ConfigError(faults, origin)
        return cls(**{**values, "options": {**values.get("options", {}), **scheme_options}})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back; a layer schedule is left out where there is none."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        table["options"], table["transform_options"] = dict(self.options), dict(self.transform_options)
        if self.layers is None:
            return {key: value for key, value in table.items() if key not in ("layers", "kinds")}
        return {**table, "layers": list(self.layers), "kinds": dict(self.kinds)}

    @property
    def name(self) -> str:
        """The schemes in words, for messages and pages: ``rope``, ``rope + window`` or ``rope + window | none``.

        ``+`` joins the schemes of a layer, and ``|`` stands between layers of different schemes.
        """
        # The options of a composition have its parts under ``schemes``, which ``_name_entry`` reads first.
        common = [] if self.scheme == "none" and self.layers else [_name_entry({"scheme": self.scheme, **self.options})]
        layers = [
            _name_entry(self.kinds.get(entry, entry) if isinstance(entry, str) else entry) for entry in self.pattern
        ]
        schemes = [" + ".join([*common, *([] if layer == "none" and common else [layer])]) for layer in layers]
        return " | ".join(dict.fromkeys(schemes)) or common[0]

    @property
    def has_single_scheme(self) -> bool:
        """Whether the side has one scheme of the catalogue: no layer schedule and no composition."""
        return self.layers is None and self.scheme != "composition"

    @property
    def pattern(self) -> list[LayerEntry]:
        """The entries of ``layers`` that are layers, without a last "..."; empty without a layer schedule."""
        return [entry for entry in self.layers or () if entry != ELLIPSIS]

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
"""The encoding of Vaswani et al. (2017), the default of encoder and decoder."""


def spell_out_short_forms(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position table with what its short forms stand for: ``preset``, ``schemes``, ``layers`` without scheme.

    Schemes as messages print them, ``rope + window(left=511)``, are a short form too. A ``preset`` that does not exist
    is left in the table, and the caller refuses it.
    """
    if _is_printed(table.get("scheme")):
        table = {**_read_printed(table["scheme"]), **{key: value for key, value in table.items() if key != "scheme"}}
    preset = POSITION_PRESETS.find(table.get("preset"))
    if preset is not None:
        table = {**copy.deepcopy(preset), **{key: value for key, value in table.items() if key != "preset"}}
    if isinstance(table.get("layers"), (list, tuple)):
        table = {**table, "layers": [_spell_out_entry(entry) for entry in table["layers"]]}
    if isinstance(table.get("kinds"), Mapping):
        table = {**table, "kinds": {name: _spell_out_entry(entry) for name, entry in table["kinds"].items()}}
    if "scheme" not in table and "schemes" in table:
        return {"scheme": "composition", **table}
    return {"scheme": "none", **table} if "scheme" not in table and "layers" in table else dict(table)


def _is_printed(name: object) -> bool:
    """Return whether a name is that of schemes with options or of several, as messages print them."""
    return isinstance(name, str) and any(mark in name for mark in "+|(")


def _read_printed(text: str) -> dict[str, Any]:
    """Return the table of schemes as messages print them; between ``|`` stand layers that take turns."""
    layers = [part.strip() for part in split_outside(text, "|")]
    if len(layers) > 1:
        return {"layers": [*map(_spell_out_entry, layers), ELLIPSIS]}
    try:
        name, options = read_part(text)
    except ConfigError:
        return {"scheme": text}  # which is no scheme, as is told where it is looked up
    return {"scheme": name, **options}


def _spell_out_entry(entry: LayerEntry) -> LayerEntry:
    """Return an entry of ``layers`` as a table where it is schemes as messages print them."""
    if not _is_printed(entry):
        return entry
    table = _read_printed(str(entry))
    return {"schemes": table["schemes"]} if "schemes" in table else table


def _name_entry(entry: LayerEntry) -> str:
    """Return the schemes of an entry of ``layers`` in words."""
    if not isinstance(entry, Mapping):
        return str(entry)
    parts = entry.get("schemes", ())
    return " + ".join(map(_name_entry, parts)) if parts else str(entry.get("scheme"))
