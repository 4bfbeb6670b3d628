"""The position configuration of a model as one table: layer -> what it rotates, how far it sees."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from clockhands.explanation.rotation import Rotation

NOT_KNOWN = "not known"
"""How the ``entry`` of a file begins that does not say how positions enter."""
WITHOUT_ATTENTION = ("linear_attention", "mamba", "conv", "recurrent", "moe", "mlp")
"""Parts of the names of kinds of layers that have no attention."""


def look_up(config: Any, path: str) -> Any:
    """Return what stands in a filled-in configuration, in the part of a dotted name; None where nothing does."""
    for name in path.split("."):
        try:
            config = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
        except Exception:  # a value that differs from layer to layer
            return None
    return config


@functools.cache
def read_facts(name: str) -> dict[str, Any]:
    """Return what stands in the code of other programs and in none of their files: a JSON file of this folder."""
    facts: dict[str, Any] = json.loads(resources.files(__package__).joinpath(name).read_text("utf8"))
    return facts


@dataclass(frozen=True)
class Layer:
    """One layer: its kind, how it rotates (None: not at all), how many tokens back it sees (None: all).

    ``chunk``: tokens of a chunk, where attention stays within chunks. ``temperature``: what multiplies the queries by
    position, in words; empty for nothing. ``attends``: False for a layer without softmax attention.
    """

    kind: str
    rotation: Rotation | None = None
    window: int | None = None
    chunk: int | None = None
    temperature: str = ""
    attends: bool = True


def make_layer(
    rotation: Rotation | None, window: int | None = None, chunk: int | None = None, temperature: str = ""
) -> Layer:
    """Return a layer of attention, whose kind is said by how far it sees."""
    kind = "sliding_attention" if window else "chunked_attention" if chunk else "full_attention"
    return Layer(kind, rotation, window, chunk, temperature)


@dataclass(frozen=True)
class Positions:
    """What a file says of positions, as one program reads it.

    ``source``: the file. ``program``: who reads it. ``model``: the architecture as the file names it.
    ``entry``: where else positions enter ("a learned table of 1,024 rows"), empty for rotation alone.
    ``trained_length``, ``claimed_length``: tokens, None where the file does not say. ``notes``: what the reader should
    know. ``unread``: keys about position that this program does not read here. ``strange``: keys that look like
    position, with their values, and are not understood. ``part``: of a ``config.json``, the part that reads text,
    at ``prefix`` in it; ``tables``: its ``rope_parameters`` as transformers fills them in; ``config``: all that it
    fills in.
    """

    source: str
    program: str
    model: str
    layers: tuple[Layer, ...]
    entry: str = ""
    trained_length: int | None = None
    claimed_length: int | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    strange: tuple[tuple[str, str], ...] = ()
    part: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    prefix: str = ""
    tables: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    config: Any = field(default=None, compare=False, repr=False)

    def groups(self) -> Iterator[tuple[list[int], Layer]]:
        """Yield the different layers in order of first appearance, each with the numbers of those that equal it."""
        numbers: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            numbers.setdefault(layer, []).append(index)
        for layer, those in numbers.items():
            yield those, layer

    def rotations(self) -> list[Rotation]:
        """Return the different rotations of all layers."""
        return list(dict.fromkeys(layer.rotation for layer in self.layers if layer.rotation is not None))
