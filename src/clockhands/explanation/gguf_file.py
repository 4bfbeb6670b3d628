"""Reads the metadata of a GGUF file as llama.cpp does. The tensors are not read, but for the list of factors."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from clockhands.errors import CheckpointError, show_value
from clockhands.explanation.filled import POSITION
from clockhands.explanation.numbers import check_count, check_layers, check_number
from clockhands.explanation.rotation import Pairing, Rotation, temperature_of
from clockhands.explanation.table import Layer, Positions

__all__ = ["find_architecture", "read_gguf", "read_metadata"]

# The formats of values by their number in the file (ggml/docs/gguf.md); 8 is a text, 9 a list.
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
MOST_ENTRIES, LONGEST_TEXT, LONGEST_LIST = 100_000, 1 << 26, 1 << 24
FACTORS = "rope_freqs.weight"


@functools.cache
def load_llama_facts() -> dict[str, Any]:
    """Return what is in llama.cpp's code, not in its files.

    ``halves``: architectures whose channels are paired in halves (its type NEOX; the others are interleaved, NORM).
    ``window_patterns``: every how many layers one has no window. ``local_bases``: bases of layers with a window.
    """
    facts: dict[str, Any] = json.loads(resources.files(__package__).joinpath("llama_cpp.json").read_text("utf8"))
    return facts


@dataclass(frozen=True)
class _Keys:
    """The settings of an architecture in a file; those that were asked for are remembered."""

    values: Mapping[str, Any]
    source: str
    model: str
    used: set[str] = field(default_factory=set)

    def get(self, key: str) -> Any:
        self.used.add(f"{self.model}.{key}")
        return self.values.get(f"{self.model}.{key}")

    def number(self, key: str, default: float, least: float = -math.inf) -> float:
        value = self.get(key)
        return default if value is None else check_number(value, f"{self.model}.{key}", self.source, least)

    def count(self, key: str, default: int | None = None, least: int = 1) -> int | None:
        value = self.get(key)
        return default if value is None else check_count(value, f"{self.model}.{key}", self.source, least)

    def list_unread(self) -> tuple[tuple[str, str], ...]:
        """Return keys about position that nothing asked for, without the architecture, with their values."""
        start = f"{self.model}."
        return tuple(
            (key.removeprefix(start), show_value(value))
            for key, value in sorted(self.values.items())
            if key.startswith((f"{start}rope.", f"{start}attention.")) and key not in self.used
            if POSITION.search(key.removeprefix(start)) and key.removeprefix(start) not in WITHOUT_EFFECT
        )


WITHOUT_EFFECT = ("rope.scaling.finetuned",)
"""Keys about position that llama.cpp reads and does nothing with."""


def find_architecture(model_type: str) -> str | None:
    """Return llama.cpp's name of an architecture of transformers; None if it has none."""

    def plain(name: str) -> str:
        return re.sub("[_-]", "", name.removesuffix("_text"))

    known = load_llama_facts()["architectures"]
    return next((name for name in known if plain(name) == plain(model_type)), None)


def read_gguf(path: Path) -> Positions:
    """Read what a GGUF file says of positions. Raises CheckpointError for a file that is damaged or is no GGUF."""
    values, factors = read_metadata(path)
    source, model = str(path), str(values.get("general.architecture", ""))
    keys = _Keys(values, source, model)
    heads = keys.get("attention.head_count")
    heads = heads[0] if isinstance(heads, list) and heads else heads
    heads = 1 if heads is None else check_count(heads, f"{model}.attention.head_count", source)
    width = keys.count("attention.key_length") or int(keys.number("embedding_length", 0, 0)) // heads
    channels = keys.count("rope.dimension_count", width, least=0) or 0
    rotation = _make_rotation(keys, (width, channels), factors) if channels >= 2 else None
    count = check_layers(keys.number("block_count", 1), f"{model}.block_count", source)
    window = keys.count("attention.sliding_window", least=0) or None
    local = _make_local_rotation(rotation, keys)
    pattern = keys.get("attention.sliding_window_pattern")
    has_window = _list_windows(pattern, model, count) if window else [False] * count
    original = keys.count("rope.scaling.original_context_length")
    claimed = keys.count("context_length", least=0) or None
    temperature = _describe_temperature(keys)
    return Positions(
        source=source,
        program="llama.cpp",
        model=model,
        layers=tuple(
            Layer("sliding_attention", local, window, temperature=temperature)
            if inside
            else Layer("full_attention", rotation, temperature=temperature)
            for inside in has_window
        ),
        trained_length=original or claimed,
        claimed_length=claimed,
        strange=keys.list_unread(),
    )


def _describe_temperature(keys: _Keys) -> str:
    """Describe the factor of queries by position that Mistral's converter writes; empty where there is none."""
    scale, length = keys.get("attention.temperature_scale"), keys.get("attention.temperature_length")
    if not scale:
        return ""
    scale = check_number(scale, f"{keys.model}.attention.temperature_scale", keys.source)
    length = length or keys.get("rope.scaling.original_context_length")
    return f"queries × (1 + {scale:g} ln(1 + ⌊p/{length}⌋)) at position p"


def _list_windows(pattern: Any, model: str, count: int) -> list[bool]:
    """Return which layers have the window, from the file or from llama.cpp's code."""
    if isinstance(pattern, list):
        return [bool(pattern[layer]) if layer < len(pattern) else False for layer in range(count)]
    every = pattern if isinstance(pattern, int) and pattern > 0 else load_llama_facts()["window_patterns"].get(model, 0)
    return [every == 0 or (layer + 1) % every != 0 for layer in range(count)]


def _make_local_rotation(rotation: Rotation | None, keys: _Keys) -> Rotation | None:
    """Return the rotation of layers with a window; one with a base of its own is not scaled."""
    base = keys.number("rope.freq_base_swa", load_llama_facts()["local_bases"].get(keys.model, 0.0))
    width, channels = keys.count("attention.key_length_swa"), keys.count("rope.dimension_count_swa")
    if rotation is None or not (base or channels or width):
        return rotation
    origin = {**rotation.origin, "channels": f"{keys.model}.rope.dimension_count_swa"} if channels else rotation.origin
    local = dataclasses.replace(
        rotation, head_dim=width or rotation.head_dim, channels=channels or width or rotation.channels, origin=origin
    )
    if not base:
        return local
    origin = {**origin, "base": f"{keys.model}.rope.freq_base_swa, or llama.cpp's code"}
    return dataclasses.replace(local, base=base, rule="default", factor=1.0, amplitude=1.0, origin=origin)


def _make_rotation(keys: _Keys, widths: tuple[int, int], factors: tuple[float, ...]) -> Rotation:
    """Make the rotation of all layers. Raises CheckpointError for a rule that is not known."""
    width, channels = widths
    model = keys.model
    scaling = str(keys.get("rope.scaling.type") or ("linear" if keys.get("rope.scale_linear") else "none"))
    rules = {"none": "default", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}
    if scaling not in rules:
        raise CheckpointError(f"{keys.source} sets {model}.rope.scaling.type = {scaling!r}, which is not known")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    origin = {
        "base": f"{model}.rope.freq_base" if keys.get("rope.freq_base") is not None else "llama.cpp's default",
        "factor": f"{model}.rope.scaling.factor",
        "rule": f"{model}.rope.scaling.type",
        "original_length": f"{model}.rope.scaling.original_context_length",
        "extrapolation": f"{model}.rope.scaling.yarn_ext_factor",
        "factors": FACTORS,
        "channels": f"{model}.rope.dimension_count",
    }
    # How much of the ramp of YaRN counts: below 0 for what the rule says, 0 for linear scaling alone.
    extrapolation = keys.number("rope.scaling.yarn_ext_factor", -1.0)
    extrapolation = float(scaling == "yarn") if extrapolation < 0 else extrapolation
    rule = "yarn" if extrapolation and scaling != "longrope" else rules[scaling].replace("yarn", "linear")
    amplitude, logit_factor = _read_amplitudes(keys, rule == "yarn", factor, origin)
    pairing: Pairing = "halves" if model in load_llama_facts()["halves"] else "interleaved"
    length = keys.count("rope.scaling.original_context_length") or keys.count("context_length", least=0) or None
    return Rotation(
        head_dim=width,
        channels=channels,
        base=keys.number("rope.freq_base", 10000.0),
        rule=rule,  # type: ignore[arg-type]
        factor=factor,
        original_length=length if scaling != "none" or extrapolation else None,
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        extrapolation=extrapolation if rule == "yarn" else 1.0,
        factors=factors,
        amplitude=amplitude,
        logit_factor=logit_factor,
        pairing=pairing,
        origin=origin,
    )


def _read_amplitudes(keys: _Keys, yarn: bool, factor: float, origin: dict[str, str]) -> tuple[float, float]:
    """Return the factor of cosines and sines, and that of all logits; where they come from is added to ``origin``."""
    amplitude = keys.number("rope.scaling.attn_factor", 1.0)
    beside, log_multiplier = (
        keys.number(f"rope.scaling.yarn_{key}", default)
        for key, default in (("attn_factor", 1.0), ("log_multiplier", 0.0))
    )
    if not yarn:  # where the ramp counts, llama.cpp computes the factor of YaRN in place of this one
        origin["amplitude"] = f"{keys.model}.rope.scaling.attn_factor, yarn_attn_factor"
        return amplitude * beside, 1.0
    # Converters write mscale_all_dim, for deepseek2 a tenth of it (llama.cpp pull request 17945).
    deepseek = keys.model == "deepseek2"
    all_dim = log_multiplier * (10 if deepseek else 1)
    own = all_dim if deepseek and all_dim else 1.0
    amplitude *= temperature_of(factor, own) / (temperature_of(factor, all_dim) if all_dim else 1.0)
    origin["amplitude"] = f"{keys.model}.rope.scaling.yarn_log_multiplier" if all_dim else "0.1 ln(factor) + 1"
    return amplitude, temperature_of(factor, all_dim) * temperature_of(factor, all_dim) if deepseek and all_dim else 1.0


def read_metadata(path: Path) -> tuple[Mapping[str, Any], tuple[float, ...]]:
    """Return the metadata of a GGUF file, and the factors of its frequencies where it has such a tensor.

    Raises CheckpointError for what is no GGUF file of version 2 or 3, is cut off, or counts more than any file has.
    """
    try:
        with path.open("rb") as file:
            return _read_file(file, path)
    except OSError as fault:
        raise CheckpointError(f"cannot read {path}: {fault.strerror}") from fault
    except (struct.error, ValueError, OverflowError, MemoryError) as fault:
        raise CheckpointError(f"{path} is damaged: its metadata ends or breaks off within a value") from fault


def _read_file(file: BinaryIO, path: Path) -> tuple[dict[str, Any], tuple[float, ...]]:
    """Read the header, the metadata and the factors of an open file; damaged ones raise what ``struct`` raises."""
    if file.read(4) != b"GGUF":
        raise CheckpointError(f"{path} is not a GGUF file: it does not begin with GGUF")
    version = _unpack(file, "<I")
    if version not in (2, 3):
        raise CheckpointError(f"{path} is of GGUF version {version}; versions 2 and 3 are read")
    tensors, entries = _unpack(file, "<Q"), _unpack(file, "<Q")
    if max(tensors, entries) > MOST_ENTRIES:
        raise CheckpointError(f"{path} counts {tensors:,} tensors and {entries:,} settings, which no file has")
    values: dict[str, Any] = {}
    for _ in range(entries):
        key = _read_text(file)
        values[key] = _read_value(file, _unpack(file, "<I"))
    place = _find_tensor(file, tensors)
    if place is None:
        return values, ()
    count, offset = place
    alignment = values.get("general.alignment", 32)
    begin = file.tell()
    begin += -begin % (alignment if isinstance(alignment, int) and alignment > 0 else 32)
    file.seek(begin + offset)
    factors = struct.unpack(f"<{count}f", file.read(4 * count))
    return values, tuple(factors)


def _find_tensor(file: BinaryIO, tensors: int) -> tuple[int, int] | None:
    """Read the list of tensors; return how many numbers the factors of the frequencies are, and where they stand."""
    place = None
    for _ in range(tensors):
        name, dimensions = _read_text(file), _unpack(file, "<I")
        if dimensions > 8:
            raise struct.error
        shape = [_unpack(file, "<Q") for _ in range(dimensions)]
        kind, offset = _unpack(file, "<I"), _unpack(file, "<Q")
        if name == FACTORS and kind == 0 and dimensions == 1 and shape[0] <= LONGEST_LIST:
            place = shape[0], offset
    return place


def _unpack(file: BinaryIO, layout: str) -> Any:
    """Read one value of a layout of ``struct``."""
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _read_text(file: BinaryIO) -> str:
    """Read a text, its length before it."""
    length = _unpack(file, "<Q")
    if length > LONGEST_TEXT:
        raise struct.error
    text = file.read(length)
    if len(text) != length:
        raise struct.error
    return text.decode("utf8")


def _read_value(file: BinaryIO, kind: int, depth: int = 0) -> Any:
    """Read a value of a type by its number (8: a text, 9: a list); ``depth`` counts the lists around it."""
    if kind == 8:
        return _read_text(file)
    if kind == 9:
        inner, count = _unpack(file, "<I"), _unpack(file, "<Q")
        if count > LONGEST_LIST or depth > 4:
            raise struct.error
        return [_read_value(file, inner, depth + 1) for _ in range(count)]
    if kind not in FORMATS:
        raise struct.error
    return _unpack(file, FORMATS[kind])
