"""Reads the metadata of a GGUF file as llama.cpp does. The tensors are not read, but for the list of factors."""

from __future__ import annotations

import dataclasses
import functools
import json
import struct
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from clockhands.errors import CheckpointError
from clockhands.explanation.rotation import Pairing, Rotation, check_number, temperature_of
from clockhands.explanation.table import Layer, Positions, check_layers

__all__ = ["read_gguf", "read_metadata"]

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


def read_gguf(path: Path) -> Positions:
    """Read what a GGUF file says of positions. Raises CheckpointError for a file that is damaged or is no GGUF."""
    values, factors = read_metadata(path)
    source = str(path)
    model = str(values.get("general.architecture", ""))

    def find(key: str) -> Any:
        return values.get(f"{model}.{key}")

    def read_number(key: str, default: float) -> float:
        value = find(key)
        return default if value is None else check_number(value, f"{model}.{key}", source)

    heads = int(read_number("attention.head_count", 1)) if not isinstance(find("attention.head_count"), list) else 1
    width = int(read_number("attention.key_length", read_number("embedding_length", 0) / max(heads, 1)))
    channels = int(read_number("rope.dimension_count", width))
    rotation = _make_rotation(find, read_number, source, model, (width, channels), factors) if channels >= 2 else None
    count = check_layers(read_number("block_count", 1), source)
    window = find("attention.sliding_window")
    window = int(window) if isinstance(window, int) and window > 0 else None
    local = _make_local_rotation(
        rotation, model, read_number("rope.freq_base_swa", load_llama_facts()["local_bases"].get(model, 0.0))
    )
    has_window = _list_windows(find("attention.sliding_window_pattern"), model, count) if window else [False] * count
    original = find("rope.scaling.original_context_length")
    claimed = int(read_number("context_length", 0)) or None
    return Positions(
        source=source,
        program="llama.cpp",
        model=model,
        layers=tuple(
            Layer("sliding_attention", local, window) if inside else Layer("full_attention", rotation)
            for inside in has_window
        ),
        trained_length=int(original) if isinstance(original, int) else claimed,
        claimed_length=claimed,
    )


def _list_windows(pattern: Any, model: str, count: int) -> list[bool]:
    """Return which layers have the window, from the file or from llama.cpp's code."""
    if isinstance(pattern, list):
        return [bool(pattern[read_number]) if read_number < len(pattern) else False for read_number in range(count)]
    every = pattern if isinstance(pattern, int) and pattern > 0 else load_llama_facts()["window_patterns"].get(model, 0)
    return [every == 0 or (read_number + 1) % every != 0 for read_number in range(count)]


def _make_local_rotation(rotation: Rotation | None, model: str, base: float) -> Rotation | None:
    """Return the rotation of layers with a window; one with a base of its own is not scaled."""
    if rotation is None or not base:
        return rotation
    origin = {**rotation.origin, "base": f"{model}.rope.freq_base_swa, or llama.cpp's code"}
    return dataclasses.replace(rotation, base=base, rule="default", factor=1.0, amplitude=1.0, origin=origin)


def _make_rotation(
    find: Any, read_number: Any, source: str, model: str, widths: tuple[int, int], factors: tuple[float, ...]
) -> Rotation:
    """Make the rotation of all layers. Raises CheckpointError for a rule that is not known."""
    width, channels = widths
    scaling = str(find("rope.scaling.type") or ("linear" if find("rope.scale_linear") else "none"))
    rules = {"none": "default", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}
    if scaling not in rules:
        raise CheckpointError(f"{source} sets {model}.rope.scaling.type = {scaling!r}, which is not known")
    factor = read_number("rope.scaling.factor", read_number("rope.scale_linear", 1.0)) or 1.0
    origin = {
        "base": f"{model}.rope.freq_base" if find("rope.freq_base") is not None else "llama.cpp's default",
        "factor": f"{model}.rope.scaling.factor",
        "rule": f"{model}.rope.scaling.type",
        "original_length": f"{model}.rope.scaling.original_context_length",
        "factors": FACTORS,
        "channels": f"{model}.rope.dimension_count",
    }
    amplitude, logit_factor = _read_amplitudes(read_number, scaling, model, factor, origin)
    pairing: Pairing = "halves" if model in load_llama_facts()["halves"] else "interleaved"
    length = int(read_number("rope.scaling.original_context_length", read_number("context_length", 0))) or None
    return Rotation(
        head_dim=width,
        channels=channels,
        base=read_number("rope.freq_base", 10000.0),
        rule=rules[scaling],  # type: ignore[arg-type]
        factor=factor,
        original_length=length if scaling != "none" else None,
        beta_fast=read_number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=read_number("rope.scaling.yarn_beta_slow", 1.0),
        factors=factors,
        amplitude=amplitude,
        logit_factor=logit_factor,
        pairing=pairing,
        origin=origin,
    )


def _read_amplitudes(
    read_number: Any, scaling: str, model: str, factor: float, origin: dict[str, str]
) -> tuple[float, float]:
    """Return the factor of cosines and sines, and that of all logits; where they come from is added to ``origin``."""
    amplitude = read_number("rope.scaling.attn_factor", 1.0)
    if scaling != "yarn":
        return amplitude, 1.0
    # Converters write mscale_all_dim, for deepseek2 a tenth of it (llama.cpp pull request 17945).
    all_dim = read_number("rope.scaling.yarn_log_multiplier", 0.0) * (10 if model == "deepseek2" else 1)
    own = all_dim if model == "deepseek2" and all_dim else 1.0
    amplitude *= temperature_of(factor, own) / (temperature_of(factor, all_dim) if all_dim else 1.0)
    origin["amplitude"] = f"{model}.rope.scaling.yarn_log_multiplier" if all_dim else "0.1 ln(factor) + 1"
    return amplitude, temperature_of(factor, all_dim) ** 2 if model == "deepseek2" and all_dim else 1.0


def read_metadata(path: Path) -> tuple[Mapping[str, Any], tuple[float, ...]]:
    """Return the metadata of a GGUF file, and the factors of its frequencies where it has such a tensor.

    Raises CheckpointError for what is no GGUF file of version 2 or 3, is cut off, or counts more than any file has.
    """
    try:
        with path.open("rb") as file:
            return _read_file(file, path)
    except OSError as fault:
        raise CheckpointError(f"cannot read {path}: {fault.strerror}") from fault
    except (struct.error, UnicodeDecodeError, OverflowError, MemoryError) as fault:
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
