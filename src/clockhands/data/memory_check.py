"""Check that text fits the memory, before it is read, unpacked or made."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import torch

from clockhands.errors import DataError, UsageError
from clockhands.machine import format_bytes, measure_free_memory

__all__ = ["BYTES_A_PAIR", "COPIES", "GZIP_MAGIC", "STEP", "check_sentences", "read_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
COPIES = 3
"""The bytes of a file, its text, and its text with line ends of one kind are in memory at the same time."""
BYTES_A_PAIR = 300
"""Two short strings of Python and the pair that holds them, at the least."""
STEP = 1 << 24


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip.

    Raises DataError if they do not fit the memory, before they fill it: a packed file of a megabyte can unpack to a
    gigabyte, and a file such as /dev/zero has no end. Raises OSError, EOFError and zlib.error as ``gzip`` does.
    """
    most = measure_free_memory(torch.device("cpu")) // COPIES
    with path.open("rb") as plain:
        if plain.peek(2)[:2] != GZIP_MAGIC:
            return _read_at_most(plain, most, path, "holds")
        with gzip.open(plain) as unpacked:
            return _read_at_most(unpacked, most, path, "unpacks to")


def _read_at_most(stream: object, most: int, path: Path, verb: str) -> bytes:
    """Read a stream to its end. Raises DataError after more than ``most`` bytes."""
    parts, size = [], 0
    while part := stream.read(STEP):  # type: ignore[attr-defined]
        size += len(part)
        if size > most:
            raise DataError(
                f"{path} {verb} more than {format_bytes(most)}, which does not fit the memory that is free; split it "
                "into smaller files"
            )
        parts.append(part)
    return b"".join(parts)


def check_sentences(corpus: str, sizes: Mapping[str, int]) -> None:
    """Raise UsageError if the made sentences do not fit the memory; ``sizes``: how many each split has."""
    needed, available = BYTES_A_PAIR * sum(sizes.values()), measure_free_memory(torch.device("cpu"))
    if needed > available:
        name = max(sizes, key=lambda split: sizes[split])
        raise UsageError(
            f"corpus {corpus!r}: {name}={sizes[name]:,} sentences need {format_bytes(needed)} of memory, and "
            f"{format_bytes(available)} are free; ask for fewer"
        )
