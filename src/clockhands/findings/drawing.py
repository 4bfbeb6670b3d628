"""Build the figures of findings from columns of numbers, and heat maps; tensors become plain values.

Nothing is imported that makes tensors: whatever has ``tolist`` is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from clockhands.findings.figure import Figure, Mark, Number, Panel

Values = Any
"""One number or name for each point: a tensor, an array, or an iterable."""


def to_tuple(values: Values) -> tuple[Any, ...]:
    """Return values as a tuple of Python's own numbers, or of what an iterable yields."""
    return tuple(values.tolist() if hasattr(values, "tolist") else values)


def make_mark(kind: str, x: Values = (), y: Values = (), *, low: Values = (), high: Values = (), **rest: Any) -> Mark:
    """Make a mark of any ``kind`` from columns of one length; ``rest`` are other fields of ``Mark``."""
    return Mark(kind, x=to_tuple(x), y=to_tuple(y), low=to_tuple(low), high=to_tuple(high), **rest)


def make_heatmap(z: Iterable[Values], **rest: Any) -> Mark:
    """Make a heatmap of a matrix, its first row on top, None for an empty cell; ``rest``: other fields of ``Mark``."""
    return Mark("heatmap", z=tuple(to_tuple(row) for row in z), **rest)


def make_reference_line(y: float, label: str) -> Mark:
    """Make a horizontal line at the value of a reference, such as chance."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")


def draw_columns(
    kind: Literal["line", "bars", "stack"],
    x: Values,
    columns: Mapping[str, Values | None],
    *,
    title: str,
    main: str = "",
    reference: Collection[str] = (),
    intervals: Mapping[str, tuple[Values, Values]] | None = None,
    points: Mapping[str, Values | None] | None = None,
    levels: Mapping[str, Number] | None = None,
    height: Number = 0.62,
    **panel: Any,
) -> Figure:
    """Draw columns of numbers over one x, each by its label; those that are None are left out.

    Args:
        kind: how they are drawn.
        x: numbers, or names.
        columns: by label.
        title: what the figure shows.
        main: the label of the column to look at.
        reference: the labels of columns that others are compared with.
        intervals: the low and the high ends of a column.
        points: further columns that others are compared with, drawn as points.
        levels: numbers that others are compared with, drawn as horizontal lines.
        height: of the panel, relative to its width.
        panel: other fields of ``Panel``.
    """
    marks = [
        make_mark(
            kind, x, y, label=label, low=ends[0], high=ends[1],
            emphasis="reference" if label in reference else "main" if label == main else "",
        )
        for label, y in columns.items()
        for ends in [(intervals or {}).get(label, ((), ()))]
        if y is not None
    ]  # fmt: skip
    marks += [
        make_mark("points", x, y, label=label, emphasis="reference")
        for label, y in (points or {}).items()
        if y is not None
    ]
    marks += [make_reference_line(y, label) for label, y in (levels or {}).items()]
    return Figure((Panel(tuple(marks), **panel),), title=title, height=height)
