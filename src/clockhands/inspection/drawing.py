"""Short ways to put tensors into figures, and to write numbers in verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clockhands.findings import Figure, Mark, Number, Panel, Reference, choose_digits


def plain(values: Any) -> tuple[Any, ...]:
    """A tensor, array or iterable as a tuple of Python's own numbers."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return tuple(values)


def mark(kind: str, x: Any = (), y: Any = (), *, low: Any = (), high: Any = (), **rest: Any) -> Mark:
    """A mark from tensors."""
    return Mark(kind, x=plain(x), y=plain(y), low=plain(low), high=plain(high), **rest)


def heatmap(z: Any, **rest: Any) -> Mark:
    """A heatmap from a matrix."""
    return Mark("heatmap", z=tuple(plain(row) for row in z), **rest)


def draw_head_grid(grid_LH: Any, title: str) -> Figure:
    """Draw one number of every head of every layer as a heatmap; layers are numbered from 1."""
    picture = heatmap(grid_LH, x=tuple(range(grid_LH.shape[1])), y=tuple(range(1, len(grid_LH) + 1)))
    return Figure((Panel((picture,), title=title, xlabel="head", ylabel="layer"),))


def chance_line(y: float, label: str) -> Mark:
    """A horizontal line at what chance gives."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")


def format_signed(value: float) -> str:
    """``0.52``, ``−0.02``: two decimals, with a minus sign and no hyphen."""
    return f"{value:.2f}".replace("-", "−")


def percent(share: float) -> str:
    """``12 %``, ``9.0 %``, ``0.2 %``: one decimal below ten, none above."""
    value = 100 * share
    if abs(value) < 0.05:
        return "0.0 %"
    return (f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.1f} %").replace("-", "−")


def percent_range(low: float, high: float) -> str:
    """``90 % to 93 %``; with as many more digits as keep two different ends apart."""
    if percent(low) != percent(high) or max(abs(low), abs(high)) < 0.00005:
        return f"{percent(low)} to {percent(high)}"
    digits = choose_digits(100 * low, 100 * high, 0 if abs(100 * low) >= 9.95 else 1)
    return f"{100 * low:.{digits}f} % to {100 * high:.{digits}f} %".replace("-", "−")


def join_words(words: Iterable[str]) -> str:
    """``a, b and c``."""
    words = list(words)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"


def reference_untrained(value: Number | None) -> tuple[Reference, ...]:
    """The same model with fresh weights as the reference; none if it was not measured."""
    return () if value is None else (Reference("untrained", value),)
