"""Parameter count, hooks and declarations of each side's scheme, known before the model is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from clockhands.schemes.scheme import Declares, Scheme

if TYPE_CHECKING:
    from clockhands.model.config import Side, TransformerConfig

__all__ = ["BYTES_OF_FLOAT32", "SMALL", "Outline", "SpareSchemes", "build_probe"]

SMALL = 2**26
"""Bytes up to which a scheme is simply built; above, it is built without storage (which takes a second to prepare)."""
BYTES_OF_FLOAT32 = 4


@dataclass(frozen=True)
class Outline:
    """Parameter count of one instance, hooks and declarations of one side's scheme.

    ``per_layer``: every layer of the side has an instance of its own. ``hooks``: those that its class defines.
    """

    parameters: int
    per_layer: bool
    hooks: frozenset[str]
    declares: Declares

    @classmethod
    def of(cls, scheme: Scheme) -> Outline:
        """Return the outline of a scheme."""
        parameters = sum(parameter.numel() for parameter in scheme.parameters())
        return cls(parameters, scheme.per_layer, frozenset(type(scheme).hooks()), scheme.declares)


class SpareSchemes:
    """Schemes that validation built, each kept for the first model that needs one, which saves building it twice.

    Only those without parameters, whose construction draws nothing, are as good as new; and only where they would be
    built with the same type of number and on the same device again.
    """

    def __init__(self) -> None:
        self._schemes: dict[Side, tuple[Scheme, object]] = {}

    def keep(self, side: Side, scheme: Scheme) -> None:
        """Keep the scheme of a side if it can be used."""
        if next(scheme.parameters(), None) is None and not any(table.is_meta for table in scheme.buffers()):
            self._schemes[side] = scheme, _construction_defaults()

    def take(self, side: Side) -> Scheme | None:
        """Return what was kept for a side, once; None if there is nothing, or default device or dtype differ."""
        scheme, defaults = self._schemes.pop(side, (None, None))
        return scheme if defaults == _construction_defaults() else None


def _construction_defaults() -> tuple[object, ...]:
    """Return what decides, besides its arguments, how a scheme's tables are made."""
    return torch.get_default_device(), torch.get_default_dtype(), torch.is_inference_mode_enabled()


def build_probe(config: TransformerConfig, side: Side) -> Scheme:
    """Build one scheme of a side: without storage if its tables could be large. No random number is spent."""
    with torch.random.fork_rng(devices=[]):
        if BYTES_OF_FLOAT32 * _bound_entries(config, side) <= SMALL:
            return config.build_scheme(side)
        with torch.device("meta"):
            return config.build_scheme(side)


def _bound_entries(config: TransformerConfig, side: Side) -> int:
    """Return a bound on the entries of a table: the product of the two largest integers among sizes and options.

    No scheme of the catalogue has a larger table; one of another package may, and is then built with storage.
    """
    sizes = config.sizes(side)
    dimensions = [sizes.width, sizes.d_model, sizes.num_heads * sizes.head_dim]
    dimensions += [abs(int(number)) for number in _integers(config.position(side).options)]
    first, second = sorted([*dimensions, 1], reverse=True)[:2]
    return first * second


def _integers(value: Any) -> Iterator[int]:
    """Yield all integers in an option, those in lists and tables too."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, int):
        yield value
