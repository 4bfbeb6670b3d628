"""Reads the configuration of a run of this project: the decoder's side, or the encoder's where there is no decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.numbers import Settings, check_layers
from clockhands.explanation.rotation import Rotation, longrope_amplitude, temperature_of
from clockhands.explanation.table import Layer, Positions

DEFAULTS: dict[str, dict[str, float]] = {
    "default": {}, "linear": {}, "ntk": {}, "dynamic": {"original_length": 2048}, "yarn": {"original_length": 2048},
    "longrope": {"original_length": 2048}, "llama3": {"factor": 8.0, "original_length": 8192},
    "proportional": {"share": 0.25},
}  # fmt: skip
"""Spectra, and what counts where a run leaves an option out; a test compares with the scheme."""
ORIGIN = {"base": "base", "rule": "spectrum", "factor": "factor"}
SHOWN = ("rope", "window", "chunks", "temperature")
"""Schemes that the table of a layer shows; others are named beside it."""


def read_own(raw: Mapping[str, Any], source: str) -> Positions:
    """Read ``config.json`` of a run. Raises CheckpointError for one that is damaged."""
    transformer = raw.get("transformer")
    if not isinstance(transformer, Mapping):
        raise CheckpointError(f"{source} has no table 'transformer' in config.json, so it is no run of this project")
    side = "encoder" if transformer.get("kind") == "encoder" else "decoder"
    position = transformer.get(side)
    if not isinstance(position, Mapping):
        raise CheckpointError(f"{source} has no table 'transformer.{side}' in config.json")
    read = Settings(transformer, source, "transformer.").number
    width = int(read("head_dim", read("d_model", 0) // max(read("num_heads", 1), 1)))
    every = int(Settings(position, source, f"transformer.{side}.").number("skip_every", 0))
    count = check_layers(read(f"{side}_layers", 1), f"transformer.{side}_layers", source)
    layers, names = [], dict[str, None]()
    for index in range(count):
        tables = {} if every and (index + 1) % every == 0 else _list_schemes(position, index, source)
        names |= dict.fromkeys(tables)
        rotation = _make_rotation(tables["rope"], width) if "rope" in tables else None
        window = int(tables["window"].number("left", 127)) + 1 if "window" in tables else None
        chunk = int(tables["chunks"].number("size", 8192)) if "chunks" in tables else None
        temperature = "queries × a temperature by position" if "temperature" in tables else ""
        layers.append(Layer(side, rotation, window, chunk, temperature))
    others = [repr(name) for name in names if name not in SHOWN]
    entry = f"the scheme{'s' if len(others) > 1 else ''} {', '.join(others)}" if others else ""
    trained = next((layer.rotation.original_length for layer in layers if layer.rotation), None)
    claimed = int(read("max_positions", 0)) or None
    entry = entry if names else "the scheme 'none'"
    return Positions(source, "Clockhands", "clockhands", tuple(layers), entry, trained, claimed)


def _list_schemes(position: Mapping[str, Any], layer: int, source: str) -> dict[str, Settings]:
    """Return the schemes of one layer with their options: what all layers have, and its own; without ``none``."""
    options, kinds = position.get("options"), position.get("kinds")
    entries: list[Any] = [{"scheme": position.get("scheme"), **(options if isinstance(options, Mapping) else {})}]
    if pattern := [entry for entry in position.get("layers") or () if entry != "..."]:
        entry = pattern[layer % len(pattern)]
        if isinstance(kinds, Mapping) and isinstance(entry, str):
            entry = kinds.get(entry, entry)
        entries.append(entry)
    tables: dict[str, Settings] = {}
    for entry in entries:
        inside = entry.get("schemes") if isinstance(entry, Mapping) else None
        for part in inside if isinstance(inside, list) else [entry]:
            table = {"scheme": part} if isinstance(part, str) else part
            if not isinstance(table, Mapping):
                raise CheckpointError(f"{source} has a layer whose schemes are no names and no tables")
            tables[str(table.get("scheme"))] = Settings(table, source, "options.")
    tables.pop("none", None)
    return tables


def _make_rotation(options: Settings, width: int) -> Rotation:
    """Make the rotation of a side from the options of its scheme."""
    source, spectrum = options.source, str(options.values.get("spectrum", "default"))
    if spectrum not in DEFAULTS:
        raise CheckpointError(f"{source} sets options.spectrum = {spectrum!r}, which is not known")
    for key, plain in (("ramp", "channel"), ("learned", False), ("values", False), ("unscaled_first", 0)):
        if options.get(key) not in (None, plain):
            raise CheckpointError(f"{source} sets options.{key} = {options.get(key)!r}, which this table cannot say")

    def read(key: str, default: float) -> float:
        return options.number(key, DEFAULTS[spectrum].get(key, default))

    factor, base, length = read("factor", 1.0), read("base", 10000.0), int(read("original_length", 0))
    amplitude = logit_factor = 1.0
    if spectrum == "yarn":  # with DeepSeek's two slopes
        below = temperature_of(factor, read("mscale_all_dim", 0.0))
        amplitude, logit_factor = temperature_of(factor, read("mscale", 1.0)) / below, below * below
    elif spectrum == "longrope":
        amplitude = longrope_amplitude(factor, length)
    channels = int(width * read("fraction", 1.0)) // 2 * 2
    if spectrum == "ntk":  # NTK-aware scaling is a larger base
        base *= factor ** (channels / max(channels - 2, 1))
    keys = ("short_factor", "long_factor")
    lists = [options.numbers(key) for key in keys]
    return Rotation(
        width, channels, base, "default" if spectrum == "ntk" else spectrum, factor, length or None,  # type: ignore[arg-type]
        beta_fast=read("beta_fast", 32.0), beta_slow=read("beta_slow", 1.0),
        truncate=options.get("truncate") is not False, share=read("share", 1.0),
        low_frequency_factor=read("low_frequency_factor", 1.0),
        high_frequency_factor=read("high_frequency_factor", 4.0), factors=lists[0], long_factors=lists[1],
        amplitude=read("attention_factor", amplitude), logit_factor=logit_factor,
        pairing="halves" if options.get("layout") in (None, "half") else "interleaved",
        origin={name: f"options.{key}" for name, key in ORIGIN.items()} | {"amplitude": "the rule"},
    )  # fmt: skip
