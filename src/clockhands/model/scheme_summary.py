"""Summaries of schemes: parameter count, hooks and declarations, known before the model is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clockhands.errors import ConfigError
from clockhands.model.layer_schemes import BuiltSchemes
from clockhands.schemes.composition_rules import combine_declarations, list_schemes_of_fewer_axes
from clockhands.schemes.scheme import Declares, Scheme

__all__ = ["SchemeSummary"]


@dataclass(frozen=True)
class SchemeSummary:
    """What validation and parameter counts need to know about one side's schemes.

    ``num_parameters``: the number of all parameters of the side's schemes, or, if ``per_layer`` is set, of those of one
    layer; then every layer has as many. ``hooks``: the names of the hooks that are active in any of the schemes.
    ``declares``: what the schemes promise together.
    """

    num_parameters: int
    per_layer: bool
    hooks: frozenset[str]
    declares: Declares

    @classmethod
    def from_scheme(cls, scheme: Scheme) -> SchemeSummary:
        """Summarise the scheme of a side that has one scheme of the catalogue."""
        num_parameters = sum(parameter.numel() for parameter in scheme.parameters())
        return cls(num_parameters, scheme.per_layer, scheme.active_hooks(), scheme.declares)

    @classmethod
    def from_schemes(cls, built: BuiltSchemes) -> SchemeSummary:
        """Summarise all schemes of a side. Raises ConfigError where layers read different numbers of coordinates."""
        used = [built.at_input, *(built.modules[index] for index in dict.fromkeys(built.module_of_layer))]
        _refuse_different_axes(used)
        owned = {id(parameter): parameter.numel() for scheme in built.modules for parameter in scheme.parameters()}
        hooks = frozenset[str]().union(*(scheme.active_hooks() for scheme in used))
        return cls(sum(owned.values()), per_layer=False, hooks=hooks, declares=combine_declarations(used))


def _refuse_different_axes(used: Sequence[Scheme]) -> None:
    """Raise ConfigError where the layers of a side read different numbers of coordinates.

    A window takes positions of more coordinates than it reads; most schemes do not, whatever other layers read.
    """
    axes = sorted({scheme.declares.axes for scheme in used if scheme.declares.axes is not None})
    refusing = list_schemes_of_fewer_axes(used)
    if refusing:
        counts = " and ".join(map(str, axes))
        advice = "".join(f", or {text}" for text in sorted({scheme.axes_advice for scheme in refusing} - {""}))
        sentence = (
            f"the layers read positions of {counts} coordinates, and all layers of a side share the positions; "
            f"choose schemes with equally many{advice}"
        )
        raise ConfigError([sentence], "the layer schedule")
