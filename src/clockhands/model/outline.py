"""What a scheme is with the sizes of a model, seen before the model is built: its parameters, what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from clockhands.schemes.scheme import Declares, Scheme

if TYPE_CHECKING:
    from clockhands.model.config import Side, TransformerConfig

SMALL = 2**26
"""Bytes up to which a scheme is simply built; above, it is built without storage (which takes a second to prepare)."""


@dataclass(frozen=True)
class Outline:
    """What is known of one side's scheme without keeping it: parameters of one instance, and what it declares.

    ``per_layer``: every layer of the side has an instance of its own. ``hooks``: those that its class defines.
    """

    parameters: int
    per_layer: bool
    hooks: frozenset[str]
    declares: Declares


def make_outline(config: TransformerConfig, side: Side) -> Outline:
    """Build one scheme of a side, look at it and drop it. Raises ConfigError where it refuses its sizes or options."""
    scheme = build_to_look_at(config, side)
    parameters = sum(parameter.numel() for parameter in scheme.parameters())
    return Outline(parameters, scheme.per_layer, frozenset(type(scheme).hooks()), scheme.declares)


def build_to_look_at(config: TransformerConfig, side: Side) -> Scheme:
    """Build one scheme of a side: without storage if its tables could be large. No random number is spent."""
    with torch.random.fork_rng(devices=[]):
        if 4 * _largest_table(config, side) <= SMALL:
            return config.scheme(side)
        with torch.device("meta"):
            return config.scheme(side)


def _largest_table(config: TransformerConfig, side: Side) -> int:
    """Return the product of the two largest numbers that a scheme is given: no table of ours has more entries."""
    sizes = config.sizes(side)
    numbers = [sizes.width, sizes.d_model, sizes.num_heads * sizes.head_dim]
    numbers += [abs(int(number)) for number in _integers(config.position(side).options)]
    first, second = sorted([*numbers, 1], reverse=True)[:2]
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
