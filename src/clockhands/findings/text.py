"""Words and numbers in the sentences of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def _write_decimals(value: float, places: int) -> str:
    return f"{value:.{places}f}"


def choose_digits(low: float, high: float, digits: int, write: Callable[[float, int], str] = _write_decimals) -> int:
    """Return how many digits to write both ends of an interval with, so that different ends look different.

    That is ``digits``, or up to six more; ``digits`` too where the ends are equal, or six more show no difference.
    ``write`` writes a number with so many digits; by default as decimals.
    """
    more = (places for places in range(digits, digits + 7) if write(low, places) != write(high, places))
    return digits if low == high else next(more, digits)


def join_words(words: Iterable[str]) -> str:
    """Return words as an enumeration: ``a, b and c``; ``none`` where there are none."""
    *first, last = list(words) or ["none"]
    return f"{', '.join(first)} and {last}" if first else last
