"""A sentence and its translation: what a translation corpus holds."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation.

    ``group``: pairs with the same number belong together, such as twins that differ only in the order of their words,
    and statistics resample them together; a pair with None belongs to no other. ``==`` does not compare groups.
    """

    source: str
    target: str
    group: int | None = field(default=None, compare=False)
