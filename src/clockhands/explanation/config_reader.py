"""What a ``config.json`` says of positions, key by key: beside each value stands where it was found."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.rotation import check_number
from clockhands.explanation.table import check_layers

__all__ = ["Reader", "Settings", "Values", "find_settings", "list_kinds", "load_families"]

# A setting's name -> its value, and where it was found. One table is for all layers, or one for each kind: ``None`` is
# the key for all.
Values = dict[str, tuple[Any, str]]
Settings = dict[str | None, Values]


@functools.cache
def load_families() -> dict[str, dict[str, Any]]:
    """Return what each architecture means where a file says nothing; `make_families` writes it."""
    text = resources.files(__package__).joinpath("families.json").read_text("utf8")
    facts: dict[str, dict[str, Any]] = json.loads(text)
    return facts


@dataclass(frozen=True)
class Reader:
    """A configuration with the facts of its architecture, as one program reads it."""

    raw: Mapping[str, Any]
    family: Mapping[str, Any]
    source: str
    program: str
    prefix: str

    def find(self, *names: str) -> tuple[Any, str]:
        """Return the first of some keys that the file sets, with its dotted name; else the default, with its origin."""
        for name in names:
            other = self.family.get("names", {}).get(name, name)
            for key in dict.fromkeys((other, name)):
                if self.raw.get(key) is not None:
                    return self.raw[key], f"{self.prefix}{key}"
        return self.family.get(names[0]), f"default of {self.raw.get('model_type', 'the architecture')}"

    def number(self, *names: str) -> float | None:
        """Return the value of the first key that the file sets. Raises CheckpointError where it is no finite number."""
        value, origin = self.find(*names)
        return check_number(value, origin, self.source) if value is not None else None

    def count(self, *names: str) -> int | None:
        """Return a number as a whole one."""
        value = self.number(*names)
        return None if value is None else int(value)


def find_settings(reader: Reader) -> tuple[Settings, list[str]]:
    """Return the rotary settings by kind of layer, each value with its origin, and the keys that are not read."""
    raw, prefix = reader.raw, reader.prefix
    modern = reader.program != "transformers4"
    for key in ("rope_parameters", "rope_scaling"):
        if raw.get(key) is not None and not isinstance(raw[key], dict):
            raise CheckpointError(f"{reader.source} sets {prefix}{key} = {raw[key]!r}, which is not a table")
    used = "rope_scaling" if raw.get("rope_scaling") or not modern else "rope_parameters"
    table: Mapping[str, Any] = raw.get(used) or {}
    unread = [] if modern or not raw.get("rope_parameters") else [f"{prefix}rope_parameters"]
    origin = f"{prefix}{used}"
    if not table and modern:
        table, origin = _make_default_table(reader.family), f"default of {raw.get('model_type')}"
    nested = {kind: inner for kind, inner in table.items() if isinstance(inner, dict) or _is_kind(kind)}
    settings: Settings = {}
    if nested:
        for kind, inner in nested.items():
            if inner is not None and not isinstance(inner, dict):
                raise CheckpointError(f"{reader.source} sets {origin}.{kind} = {inner!r}, which is not a table")
            settings[kind] = {} if inner is None else _add_origin(inner, f"{origin}.{kind}")
            if inner is None:
                settings[kind]["rests"] = (True, f"{origin}.{kind}")
    else:
        settings[None] = _add_origin(table, origin)
    for values in settings.values():
        _add_outside(reader, values)
    _add_local_base(reader, settings, from_default=origin.startswith("default"))
    return settings, unread


def _make_default_table(family: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an architecture rotates by where a file has no table.

    A plain default is left out: then what stands beside the table counts before it.
    """
    table: Mapping[str, Any] = family.get("rope") or {}
    return {} if table.get("rope_type") == "default" else table


def _is_kind(key: str) -> bool:
    return key.endswith("_attention")


def _add_origin(table: Mapping[str, Any], origin: str) -> Values:
    return {key: (value, f"{origin}.{key}") for key, value in table.items() if value is not None}


def _add_outside(reader: Reader, values: Values) -> None:
    """Add what stands beside the table and holds where the table itself does not say it."""
    if "rope_type" not in values and "type" in values:
        values["rope_type"] = values["type"]
    for name, keys in {
        "rope_theta": ("rope_theta", "rotary_emb_base", "rotary_embedding_base", "rope_base"),
        "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage"),
    }.items():
        outside = next((key for key in keys if reader.raw.get(key) is not None), None)
        if name not in values and outside is not None:
            values[name] = (reader.raw[outside], f"{reader.prefix}{outside}")
    default = f"default of {reader.raw.get('model_type', 'Llama')}"
    inner = reader.family.get("rope") or {}
    if "partial_rotary_factor" not in values and isinstance(inner.get("partial_rotary_factor"), float):
        values["partial_rotary_factor"] = (inner["partial_rotary_factor"], default)
    if "rope_theta" not in values:
        base = reader.family.get("base", 10000.0)
        values["rope_theta"] = (base if isinstance(base, (int, float)) else 10000.0, default)


def _add_local_base(reader: Reader, settings: Settings, *, from_default: bool) -> None:
    """Give layers with a window their own base where a file of transformers 4 names one (Gemma 3, ModernBERT).

    ``from_default``: the tables are the architecture's own, so that what the file says beside them counts first.
    """
    local = next((key for key in ("rope_local_base_freq", "local_rope_theta") if reader.raw.get(key) is not None), None)
    whole = next((key for key in ("global_rope_theta", "rope_theta") if reader.raw.get(key) is not None), None)
    if None in settings and local is not None:
        settings["full_attention"] = settings.pop(None)
        settings["sliding_attention"] = {}
        from_default = True
    for kind, key in (("sliding_attention", local), ("full_attention", whole)):
        if from_default and kind in settings and key is not None:
            settings[kind]["rope_theta"] = (reader.raw[key], f"{reader.prefix}{key}")


def list_kinds(reader: Reader) -> list[str]:
    """Return the kind of each layer, from the file or from the architecture's pattern."""
    kinds, model = _list_written_kinds(reader), reader.raw.get("model_type")
    if model in LAST_SEES_ALL or (model in LAST_SEES_ALL_BY_DEFAULT and not reader.raw.get("layer_types")):
        kinds[-1] = "full_attention"
    return kinds


LAST_SEES_ALL = ("gemma4_text", "gemma4_unified_text", "diffusion_gemma_text")
"""Architectures whose last layer has no window, whatever a file lists."""
LAST_SEES_ALL_BY_DEFAULT = ("beam", "flint", "neomme")
"""Architectures whose last layer has no window where a file lists nothing, besides those of their pattern."""
FROM_LAST = ("muse_spark_text",)
"""Architectures whose pattern ends with the last layer, however many there are."""


def _list_written_kinds(reader: Reader) -> list[str]:
    listed, _ = reader.find("layer_types")
    written = reader.raw.get(reader.family.get("names", {}).get("layer_types", "layer_types"))
    if written is not None and not isinstance(written, list):
        raise CheckpointError(f"{reader.source} sets {reader.prefix}layer_types = {written!r}, which is not a list")
    count = reader.count("num_hidden_layers", "n_layer", "num_layers", "n_layers") or (len(written) if written else 1)
    count = check_layers(len(written) if written else count, reader.source)
    if written:
        return [str(kind) for kind in written]
    every = reader.count("sliding_window_pattern", "_sliding_window_pattern")
    if every and "layer_types" in reader.family:
        return ["full_attention" if (layer + 1) % every == 0 else "sliding_attention" for layer in range(count)]
    if reader.raw.get("use_sliding_window") and reader.raw.get("sliding_window"):
        first = reader.count("max_window_layers") or 0
        return ["sliding_attention" if layer >= first else "full_attention" for layer in range(count)]
    pattern = listed or ["sliding_attention" if _has_windows_everywhere(reader) else "full_attention"]
    start = -count if reader.raw.get("model_type") in FROM_LAST else 0
    return [pattern[(start + layer) % len(pattern)] for layer in range(count)]


def _has_windows_everywhere(reader: Reader) -> bool:
    """Whether every layer has the window: where a file sets one and neither pattern nor switch says otherwise."""
    return reader.raw.get("sliding_window") is not None and reader.raw.get("use_sliding_window") is not False
