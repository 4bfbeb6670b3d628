"""Reads the settings of a GGUF file, bounded, and the lists of factors among its tensors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from clockhands.errors import CheckpointError

# The formats of values by their number in the file (ggml/docs/gguf.md); 8 is a text, 9 a list.
FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
MOST_ENTRIES, LONGEST_TEXT, LONGEST_LIST, MOST_DIMENSIONS, DEEPEST_LIST = 100_000, 1 << 26, 1 << 24, 8, 4
FACTORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors by which plain frequencies are divided: on texts of every length; up to the original length, and beyond."""


def read_metadata(path: Path) -> tuple[Mapping[str, Any], dict[str, tuple[float, ...]]]:
    """Return the metadata of a GGUF file, and the factors of its frequencies by the names of their tensors.

    Raises CheckpointError for what is no GGUF file of version 2 or 3, is cut off, or counts more than any file has.
    """
    try:
        with path.open("rb") as file:
            return _read_file(file, path)
    except OSError as fault:
        raise CheckpointError(f"cannot read {path}: {fault.strerror}") from fault
    except (struct.error, ValueError, OverflowError, MemoryError) as fault:
        raise CheckpointError(f"{path} is damaged: its metadata ends or breaks off within a value") from fault


def _read_file(file: BinaryIO, path: Path) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
    if file.read(4) != b"GGUF":
        raise CheckpointError(f"{path} is not a GGUF file: it does not begin with GGUF")
    if (version := _read_value(file, 4)) not in (2, 3):
        raise CheckpointError(f"{path} is of GGUF version {version}; versions 2 and 3 are read")
    tensors, entries = _read_value(file, 10), _read_value(file, 10)
    if max(tensors, entries) > MOST_ENTRIES:
        raise CheckpointError(f"{path} counts {tensors:,} tensors and {entries:,} settings, which no file has")
    values: dict[str, Any] = {}
    for _ in range(entries):
        key = _read_value(file, 8)
        values[key] = _read_value(file, _read_value(file, 4))
    places: dict[str, tuple[int, int]] = {}
    for _ in range(tensors):
        name, dimensions = _read_value(file, 8), _read_value(file, 4)
        if dimensions > MOST_DIMENSIONS:
            raise struct.error
        shape = [_read_value(file, 10) for _ in range(dimensions)]
        kind, offset = _read_value(file, 4), _read_value(file, 10)
        if name in FACTORS and kind == 0 and dimensions == 1 and shape[0] <= LONGEST_LIST:
            places[name] = shape[0], offset
    alignment = values.get("general.alignment", 32)
    begin = file.tell()
    begin += -begin % (alignment if isinstance(alignment, int) and alignment > 0 else 32)
    factors = {}
    for name, (count, offset) in places.items():
        file.seek(begin + offset)
        factors[name] = struct.unpack(f"<{count}f", file.read(4 * count))
    return values, factors


def _read_value(file: BinaryIO, kind: int, depth: int = 0) -> Any:
    """Read a value of a type by its number; ``depth`` counts the lists around it."""
    if kind == 9:
        inner, count = _read_value(file, 4), _read_value(file, 10)
        if count > LONGEST_LIST or depth > DEEPEST_LIST:
            raise struct.error
        return [_read_value(file, inner, depth + 1) for _ in range(count)]
    if kind == 8:
        length = _read_value(file, 10)
        text = file.read(length) if length <= LONGEST_TEXT else b""
        if len(text) != length:
            raise struct.error
        return text.decode("utf8")
    if kind not in FORMATS:
        raise struct.error
    return struct.unpack(FORMATS[kind], file.read(struct.calcsize(FORMATS[kind])))[0]
