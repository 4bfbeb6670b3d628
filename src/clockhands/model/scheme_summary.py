"""Summaries of schemes: parameter count, hooks and declarations, known before the model is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from clockhands.errors import ConfigError
from clockhands.model.layer_schemes import BuiltSchemes
from clockhands.schemes import Sizes
from clockhands.schemes.composition_rules import combine_declarations
from clockhands.schemes.scheme import Declares, Scheme

if TYPE_CHECKING:
    from clockhands.model.config_types import Side
    from clockhands.model.position_config import PositionConfig

__all__ = [
    "BYTES_OF_FLOAT32",
    "SMALL_TABLE_BYTES",
    "SchemeSummary",
    "SpareSchemes",
    "avoid_large_tables",
]

SMALL_TABLE_BYTES = 2**26
"""Bytes of the largest table with which a scheme is built as it is; with a larger one it is built on the meta device,
whose first use takes a second."""
BYTES_OF_FLOAT32 = 4


@dataclass(frozen=True)
class SchemeSummary:
    """What validation and parameter counts need to know about one side's schemes.

    ``parameters``: how many one instance has; of several schemes, all of the side together. ``per_layer``: whether
    ``parameters`` are those of one layer, and every layer has as many. ``hooks``: the names of those that are active.
    ``declares``: what holds for all.
    """

    parameters: int
    per_layer: bool
    hooks: frozenset[str]
    declares: Declares

    @classmethod
    def of(cls, scheme: Scheme) -> SchemeSummary:
        """Summarise a scheme."""
        parameters = sum(parameter.numel() for parameter in scheme.parameters())
        return cls(parameters, scheme.per_layer, scheme.active_hooks(), scheme.declares)

    @classmethod
    def of_side(cls, built: BuiltSchemes) -> SchemeSummary:
        """Summarise all schemes of a side. Raises ConfigError where layers read positions of different axes."""
        used = [built.at_input, *(built.modules[index] for index in dict.fromkeys(built.module_of_layer))]
        axes = sorted({scheme.declares.axes for scheme in used if scheme.declares.axes is not None})
        if len(axes) > 1:
            counts = " and ".join(map(str, axes))
            raise ConfigError(
                [f"the layers read positions of {counts} coordinates, and a token has those of one kind"], ""
            )
        owned = {id(parameter): parameter.numel() for scheme in built.modules for parameter in scheme.parameters()}
        hooks = frozenset[str]().union(*(scheme.active_hooks() for scheme in used))
        return cls(sum(owned.values()), False, hooks, combine_declarations(used))


class SpareSchemes:
    """Schemes that validation built, each kept for the first model that needs one, so that it is not built twice.

    A scheme is kept only if it equals a new one: it has no parameters, so that its construction draws no random number,
    and PyTorch's default device and dtype are still the same. One with parameters is built again, since its constructor
    draws numbers that belong between those of the model.
    """

    def __init__(self) -> None:
        self._schemes: dict[Side, tuple[Scheme, object]] = {}

    def keep(self, side: Side, scheme: Scheme) -> None:
        """Keep the scheme of a side if it has no parameters and its tables have values."""
        if next(scheme.parameters(), None) is None and not any(table.is_meta for table in scheme.buffers()):
            self._schemes[side] = scheme, _read_torch_defaults()

    def take(self, side: Side) -> Scheme | None:
        """Return the scheme kept for a side, once; None if there is none, or the default device or dtype differ."""
        scheme, defaults = self._schemes.pop(side, (None, None))
        return scheme if defaults == _read_torch_defaults() else None


def _read_torch_defaults() -> tuple[object, ...]:
    """Return the settings of PyTorch that decide how a scheme's tables are made."""
    return torch.get_default_device(), torch.get_default_dtype(), torch.is_inference_mode_enabled()


@contextmanager
def avoid_large_tables(position: PositionConfig, sizes: Sizes) -> Iterator[None]:
    """Inside the block, schemes are made on the meta device if their tables could be large.

    The random state stays as it was.
    """
    could_be_large = BYTES_OF_FLOAT32 * _compute_most_table_entries(position, sizes) > SMALL_TABLE_BYTES
    with torch.random.fork_rng(devices=[]), torch.device("meta") if could_be_large else nullcontext():
        yield


def _compute_most_table_entries(position: PositionConfig, sizes: Sizes) -> int:
    """Return the most entries that a table can have: the product of the two largest integers among sizes and options.

    No scheme of the catalogue has a larger table; one of another package may, and is then not built on the meta device.
    """
    dimensions = [sizes.width, sizes.d_model, sizes.num_heads * sizes.head_dim]
    tables = (position.options, position.layers or (), position.kinds)
    dimensions += [abs(int(value)) for table in tables for value in _find_integers(table)]
    first, second = sorted([*dimensions, 1], reverse=True)[:2]
    return first * second


def _find_integers(value: Any) -> Iterator[int]:
    """Yield all integers in an option, also those in lists and tables."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_integers(item)
    elif isinstance(value, int):
        yield value
