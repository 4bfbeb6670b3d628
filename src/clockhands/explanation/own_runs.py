"""Reads the configuration of a run of this project: the decoder's side, or the encoder's where there is no decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.numbers import check_layers, check_number
from clockhands.explanation.rotation import Rotation, temperature_of
from clockhands.explanation.table import Layer, Positions

DEFAULTS: dict[str, dict[str, float]] = {
    "default": {},
    "linear": {},
    "ntk": {},
    "dynamic": {"length": 2048},
    "yarn": {"length": 2048},
    "longrope": {"length": 2048},
    "llama3": {"factor": 8.0, "length": 8192},
    "proportional": {"share": 0.25},
}
"""Spectra, and what counts where a run leaves an option out; a test compares with the scheme."""
ORIGIN = {"base": "options.base", "rule": "options.spectrum", "factor": "options.factor", "amplitude": "the rule"}
"""Where the numbers of a rotation stand in a run."""


def read_own(raw: Mapping[str, Any], source: str) -> Positions:
    """Read ``config.json`` of a run. Raises CheckpointError for one that is damaged."""
    transformer = raw.get("transformer")
    if not isinstance(transformer, Mapping):
        raise CheckpointError(f"{source} has no table 'transformer' in config.json, so it is no run of this project")

    def read_number(key: str, default: float) -> float:
        value = transformer.get(key)
        return default if value is None else check_number(value, f"transformer.{key}", source)

    side = "encoder" if transformer.get("kind") == "encoder" else "decoder"
    position = transformer.get(side)
    if not isinstance(position, Mapping):
        raise CheckpointError(f"{source} has no table 'transformer.{side}' in config.json")
    width = int(read_number("head_dim", read_number("d_model", 0) // max(read_number("num_heads", 1), 1)))
    every = int(check_number(position.get("skip_every") or 0, f"transformer.{side}.skip_every", source))
    count = check_layers(read_number(f"{side}_layers", 1), f"transformer.{side}_layers", source)
    schemes = [
        [] if every and (layer + 1) % every == 0 else list_schemes(position, layer, source) for layer in range(count)
    ]
    layers = tuple(_make_layer(side, parts, width, source) for parts in schemes)
    claimed = int(read_number("max_positions", 0)) or None
    names = dict.fromkeys(str(part.get("scheme")) for parts in schemes for part in parts)
    others = [repr(name) for name in names if name not in SHOWN]
    entry = f"the scheme{'s' if len(others) > 1 else ''} {', '.join(others)}" if others else ""
    if not names:
        entry = "the scheme 'none'"
    trained = next((layer.rotation.original_length for layer in layers if layer.rotation), None)
    return Positions(source, "Clockhands", "clockhands", layers, entry, trained, claimed)


SHOWN = ("rope", "window", "chunks", "temperature")
"""Schemes that the table of a layer shows; others are named beside it."""


def list_schemes(position: Mapping[str, Any], layer: int, source: str) -> list[Mapping[str, Any]]:
    """Return the tables of the schemes of one layer: what all layers have, and its own; without the scheme ``none``.

    Raises CheckpointError for entries that name no scheme.
    """
    options = position.get("options")
    entries: list[Any] = [{"scheme": position.get("scheme"), **(options if isinstance(options, Mapping) else {})}]
    pattern = [entry for entry in position.get("layers") or () if entry != "..."]
    kinds = position.get("kinds")
    if pattern:
        entry = pattern[layer % len(pattern)]
        known = isinstance(kinds, Mapping) and isinstance(entry, str) and entry in kinds
        entries.append(kinds[entry] if known and isinstance(kinds, Mapping) else entry)
    parts: list[Any] = []
    for entry in entries:
        inside = entry.get("schemes") if isinstance(entry, Mapping) else None
        parts += inside if isinstance(inside, list) else [entry]
    tables = [{"scheme": part} if isinstance(part, str) else part for part in parts]
    if not all(isinstance(table, Mapping) for table in tables):
        raise CheckpointError(f"{source} has a layer whose schemes are no names and no tables")
    return [table for table in tables if table.get("scheme") != "none"]


def _make_layer(side: str, schemes: list[Mapping[str, Any]], width: int, source: str) -> Layer:
    """Make the row of one layer from its schemes."""
    tables = {str(scheme.get("scheme")): scheme for scheme in schemes}

    def number(scheme: str, key: str, default: float) -> int | None:
        value = tables.get(scheme, {}).get(key)
        return int(check_number(default if value is None else value, key, source)) if scheme in tables else None

    rotation = _make_rotation(tables["rope"], width, source) if "rope" in tables else None
    left = number("window", "left", 127)
    window = None if left is None else left + 1
    temperature = "queries × a temperature by position" if "temperature" in tables else ""
    return Layer(side, rotation, window, number("chunks", "size", 8192), temperature)


def _make_rotation(options: Mapping[str, Any], width: int, source: str) -> Rotation:
    """Make the rotation of a side from the options of its scheme.

    Raises CheckpointError for a spectrum that is not known, and for options that a ``Rotation`` does not have.
    """

    def read_number(key: str, default: float) -> float:
        value = options.get(key)
        return default if value is None else check_number(value, f"options.{key}", source)

    spectrum = str(options.get("spectrum", "default"))
    if spectrum not in DEFAULTS:
        raise CheckpointError(f"{source} sets options.spectrum = {spectrum!r}, which is not known")
    for key, plain in (("ramp", "channel"), ("learned", False), ("values", False), ("unscaled_first", 0)):
        if options.get(key) not in (None, plain):
            raise CheckpointError(f"{source} sets options.{key} = {options[key]!r}, which this table cannot say")
    own = DEFAULTS[spectrum]
    factor = read_number("factor", own.get("factor", 1.0))
    length = int(read_number("original_length", own.get("length", 0)))
    amplitude = temperature_of(factor, 1.0) if spectrum == "yarn" else 1.0
    if spectrum == "longrope" and factor > 1:
        amplitude = math.sqrt(1 + math.log(factor) / math.log(length))
    channels = int(width * read_number("fraction", 1.0)) // 2 * 2
    base = read_number("base", 10000.0)
    if spectrum == "ntk":  # NTK-aware scaling is a larger base
        base *= factor ** (channels / max(channels - 2, 1))
    return Rotation(
        head_dim=width,
        channels=channels,
        base=base,
        rule="default" if spectrum == "ntk" else spectrum,  # type: ignore[arg-type]
        factor=factor,
        original_length=length or None,
        beta_fast=read_number("beta_fast", 32.0),
        beta_slow=read_number("beta_slow", 1.0),
        truncate=options.get("truncate") is not False,
        low_frequency_factor=read_number("low_frequency_factor", 1.0),
        high_frequency_factor=read_number("high_frequency_factor", 4.0),
        factors=_list_numbers(options, "short_factor", source),
        long_factors=_list_numbers(options, "long_factor", source),
        share=read_number("share", own.get("share", 1.0)),
        amplitude=read_number("attention_factor", amplitude),
        pairing="halves" if options.get("layout", "half") == "half" else "interleaved",
        origin=dict(ORIGIN),
    )


def _list_numbers(options: Mapping[str, Any], key: str, source: str) -> tuple[float, ...]:
    """Return an option that is a list of numbers; empty where it is not given."""
    values = options.get(key) or ()
    if not isinstance(values, (list, tuple)):
        raise CheckpointError(f"{source} sets options.{key} = {values!r}, which is not a list of numbers")
    return tuple(check_number(value, f"options.{key}", source) for value in values)
