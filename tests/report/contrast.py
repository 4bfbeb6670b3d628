"""Contrast as WCAG 2.2 defines it, of colours as three numbers from 0 to 255."""

from __future__ import annotations

from collections.abc import Sequence


def parse_colour(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return red, green, blue


def luminance(colour: Sequence[float]) -> float:
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour: Sequence[float], other: Sequence[float]) -> float:
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)
