"""Build the schemes of a configuration's sides: once to summarise them, and then for each model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from clockhands.model.config_fields import TransformerFields
from clockhands.model.config_types import Side
from clockhands.model.layer_schemes import BuiltSchemes, build_side
from clockhands.model.position_config import PositionConfig
from clockhands.model.scheme_summary import SchemeSummary
from clockhands.schemes import Sizes
from clockhands.schemes.scheme import Scheme

__all__ = ["BYTES_OF_FLOAT32", "SMALL_TABLE_BYTES", "SchemeFactory", "avoid_large_tables"]

SMALL_TABLE_BYTES = 2**26
"""To be summarised, a scheme is built with all its values if none of its tables can have more bytes than this. Else it
is built on the meta device, where tensors have no values; PyTorch takes a second to use that device the first time."""
BYTES_OF_FLOAT32 = 4


class SchemeFactory:
    """Builds and summarises the schemes of one configuration's sides.

    What a scheme declares is known only of an instance, so validation builds those of each side and keeps a summary.
    Where a side has a single scheme (``PositionConfig.has_single_scheme``), that instance is kept for the first model
    of the configuration, which uses it if it equals a new one: if it has no parameters, its tables have values, and
    PyTorch's default device, default dtype and inference mode are still the same. All other schemes are built again for
    every model, which takes milliseconds.

    A scheme with parameters is never kept, so that the first model of a configuration has the same parameters as a
    later one with the same seed: every module draws its random numbers when it is built, in the order of the model.
    """

    def __init__(self) -> None:
        self._summaries: dict[Side, SchemeSummary] = {}
        self._kept: dict[Side, tuple[Scheme, object]] = {}

    def build(self, config: TransformerFields, side: Side) -> BuiltSchemes:
        """Build the schemes of a side for a model.

        Raises ConfigError where they refuse the sizes or each other, and what PyTorch, or a scheme of another package,
        raises for sizes that it cannot build.
        """
        position, num_layers = config.get_position_config(side), config.count_layers(side)
        return build_side(position, num_layers, config.get_sizes(side), self._take_kept_scheme(side))

    def summarise(self, config: TransformerFields, side: Side) -> SchemeSummary:
        """Return the summary of a side's schemes, which the first call builds. Raises what ``build`` raises."""
        if side not in self._summaries:
            position, sizes = config.get_position_config(side), config.get_sizes(side)
            # With a single scheme, all layers that do not skip it have equal instances, and one of them is enough.
            num_layers = 1 if position.has_single_scheme else config.count_layers(side)
            with avoid_large_tables(position, sizes):
                built = build_side(position, num_layers, sizes)
            if position.has_single_scheme:
                self._summaries[side] = SchemeSummary.from_scheme(built.at_input)
                self._keep_scheme(side, built.at_input)
            else:
                self._summaries[side] = SchemeSummary.from_schemes(built)
        return self._summaries[side]

    def _keep_scheme(self, side: Side, scheme: Scheme) -> None:
        """Keep the scheme of a side for a model if it has no parameters and its tables have values."""
        if next(scheme.parameters(), None) is None and not any(table.is_meta for table in scheme.buffers()):
            self._kept[side] = scheme, _read_torch_defaults()

    def _take_kept_scheme(self, side: Side) -> Scheme | None:
        """Return the scheme kept for a side, and keep it no longer.

        None if there is none, or if the settings of PyTorch have changed since.
        """
        scheme, defaults = self._kept.pop(side, (None, None))
        return scheme if defaults == _read_torch_defaults() else None


def _read_torch_defaults() -> tuple[object, ...]:
    """Return the settings of PyTorch that decide how a scheme's tables are made."""
    return torch.get_default_device(), torch.get_default_dtype(), torch.is_inference_mode_enabled()


@contextmanager
def avoid_large_tables(position: PositionConfig, sizes: Sizes) -> Iterator[None]:
    """Build schemes inside the block on the meta device if their tables could be large; keep the random state."""
    could_be_large = BYTES_OF_FLOAT32 * _bound_table_entries(position, sizes) > SMALL_TABLE_BYTES
    with torch.random.fork_rng(devices=[]), torch.device("meta") if could_be_large else nullcontext():
        yield


def _bound_table_entries(position: PositionConfig, sizes: Sizes) -> int:
    """Return the most entries that a table can have: the product of the two largest integers among sizes and options.

    Options that keep their defaults are not among them: with those, a table is small unless the sizes alone are large.
    A scheme of another package may have a larger table, and is then not built on the meta device.
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
