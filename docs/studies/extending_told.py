"""Tell differences with their intervals and what they show, for extending.py and extending_grid.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from clockhands.comparison.simultaneous import compare_with_baseline

__all__ = ["tell_all"]


def tell_all(pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return every difference with an interval that holds for all together."""
    differences = compare_with_baseline([ours for ours, _ in pairs.values()], [theirs for _, theirs in pairs.values()])
    kept: dict[str, Any] = {}
    for name, difference in zip(pairs, differences, strict=True):
        kept |= _tell(name, difference)
    return kept


def _tell(name: str, difference: Any) -> dict[str, Any]:
    """Return a difference with its interval and what it shows."""
    verdict = "more" if difference.low > 0 else "less" if difference.high < 0 else "undecided"
    low, high = float(difference.low), float(difference.high)
    return {name: float(difference.value), f"{name}, low": low, f"{name}, high": high, f"{name}, verdict": verdict}
