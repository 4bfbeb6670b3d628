"""Check that text fits the memory before it is made."""

from __future__ import annotations

from collections.abc import Mapping

from clockhands.errors import UsageError
from clockhands.machine import format_bytes, measure_free_memory
from clockhands.reading import BYTES_A_LINE

__all__ = ["check_sentences"]


def check_sentences(corpus: str, sizes: Mapping[str, int]) -> None:
    """Raise UsageError if the made sentences do not fit the memory; ``sizes``: how many each split has."""
    needed, available = BYTES_A_LINE * sum(sizes.values()), measure_free_memory()
    if needed > available:
        name = max(sizes, key=lambda split: sizes[split])
        raise UsageError(
            f"corpus {corpus!r}: {name}={sizes[name]:,} sentences need {format_bytes(needed)} of memory, and "
            f"{format_bytes(available)} are free; ask for fewer"
        )
