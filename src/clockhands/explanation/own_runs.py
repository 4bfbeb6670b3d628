"""Reads the configuration of a run of this project: the decoder's side, or the encoder's where there is no decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.rotation import Rotation, check_number, temperature_of
from clockhands.explanation.table import Layer, Positions, check_layers

__all__ = ["read_own"]

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
SPECTRA = {"ntk": "default"}
"""Spectra that another rule expresses: NTK-aware scaling is a larger base."""


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
    rotation = _make_rotation(position, width, source) if position.get("scheme") == "rope" else None
    every = int(check_number(position.get("skip_every") or 0, f"transformer.{side}.skip_every", source))
    count = check_layers(read_number(f"{side}_layers", 1), source)
    layers = tuple(Layer(side, None if every and (layer + 1) % every == 0 else rotation) for layer in range(count))
    claimed = int(read_number("max_positions", 0)) or None
    entry = "" if position.get("scheme") == "rope" else f"the scheme {position.get('scheme')!r}"
    trained = rotation.original_length if rotation else None
    return Positions(source, "Clockhands", "clockhands", layers, entry, trained, claimed)


def _make_rotation(position: Mapping[str, Any], width: int, source: str) -> Rotation:
    """Make the rotation of a side from the options of its scheme."""
    options = position.get("options")
    options = options if isinstance(options, Mapping) else {}

    def read_number(key: str, default: float) -> float:
        value = options.get(key)
        return default if value is None else check_number(value, f"options.{key}", source)

    spectrum = str(options.get("spectrum", "default"))
    _check_options(options, spectrum, source)
    own = DEFAULTS[spectrum]
    factor, length = (
        read_number("factor", own.get("factor", 1.0)),
        int(read_number("original_length", own.get("length", 0))),
    )
    channels = int(width * read_number("fraction", 1.0)) // 2 * 2
    base = read_number("base", 10000.0)
    if spectrum == "ntk":
        base *= factor ** (channels / max(channels - 2, 1))
    amplitude = temperature_of(factor, 1.0) if spectrum == "yarn" else 1.0
    if spectrum == "longrope" and factor > 1:
        amplitude = math.sqrt(1 + math.log(factor) / math.log(length))
    return Rotation(
        head_dim=width,
        channels=channels,
        base=base,
        rule=SPECTRA.get(spectrum, spectrum),  # type: ignore[arg-type]
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


def _check_options(options: Mapping[str, Any], spectrum: str, source: str) -> None:
    """Raise CheckpointError for a spectrum that is not known, and for options that a ``Rotation`` does not have."""
    if spectrum not in DEFAULTS:
        raise CheckpointError(f"{source} sets options.spectrum = {spectrum!r}, which is not known")
    for key, plain in (("ramp", "channel"), ("learned", False), ("unscaled_first", 0)):
        if options.get(key) not in (None, plain):
            raise CheckpointError(f"{source} sets options.{key} = {options[key]!r}, which this table cannot say")


def _list_numbers(options: Mapping[str, Any], key: str, source: str) -> tuple[float, ...]:
    """Return an option that is a list of numbers; empty where it is not given."""
    values = options.get(key) or ()
    if not isinstance(values, (list, tuple)):
        raise CheckpointError(f"{source} sets options.{key} = {values!r}, which is not a list of numbers")
    return tuple(check_number(value, f"options.{key}", source) for value in values)
