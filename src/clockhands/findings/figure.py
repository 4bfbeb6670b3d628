"""Figures as data: panels of marks, which the pages draw; and how columns of numbers and matrices become figures.

``draw_columns`` draws one panel, ``draw_seeds`` lines of means with the range of their seeds, ``draw_heatmap`` a
matrix; ``put_together`` makes one figure of several. Nothing is imported that makes tensors: whatever has ``tolist`` is
one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Number: TypeAlias = float | int
Scalar: TypeAlias = str | Number | bool | None


@dataclass(frozen=True)
class Mark:
    """One line, heatmap, set of points or other element of a panel.

    ``kind`` is a name in ``KINDS`` of ``clockhands.report.figures.mark_kinds``, whose classes say which fields they
    draw: ``line``, ``points``, ``bars``, ``stack`` and ``band`` use ``x`` and ``y`` or ``low`` and ``high``,
    ``heatmap`` and ``tiles`` use ``z``, ``hline`` and ``vline`` stand at ``y`` or ``x``. ``names`` gives each point its
    hover text. ``emphasis``: ``reference`` marks what a value is compared with, drawn grey and dashed; ``main`` the one
    to look at.
    """

    kind: str
    label: str = ""
    x: tuple[Scalar, ...] = ()
    y: tuple[Scalar, ...] = ()
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    z: tuple[tuple[Number | None, ...], ...] = ()
    names: tuple[str, ...] = ()
    emphasis: Literal["", "main", "reference"] = ""
    diverging: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its marks; ``equal``: a unit is as long on both axes."""

    marks: tuple[Mark, ...]
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    xscale: Literal["linear", "log"] = "linear"
    yscale: Literal["linear", "log"] = "linear"
    xlim: tuple[Number, Number] | None = None
    ylim: tuple[Number, Number] | None = None
    equal: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels in a grid of ``columns`` (4 at most are drawn); ``height`` is one panel's height relative to its width.

    ``title``: what the figure shows, in words; ``caption``: what else a reader needs.
    """

    panels: tuple[Panel, ...]
    caption: str = ""
    columns: int = 1
    height: Number = 0.62
    title: str = ""


def make_tuples(value: Any) -> Any:
    """Return lists of a JSON document as tuples, at every depth; other values as they are."""
    if isinstance(value, dict):
        return {key: make_tuples(item) for key, item in value.items()}
    return tuple(map(make_tuples, value)) if isinstance(value, list) else value


def read_figure(raw: dict[str, Any]) -> Figure:
    """Read a figure from its JSON object, whose lists are tuples."""
    panels = ({**panel, "marks": tuple(Mark(**mark) for mark in panel["marks"])} for panel in raw["panels"])
    return Figure(**{**raw, "panels": tuple(Panel(**panel) for panel in panels)})


PointValues = Any
"""One number or name for each point: a tensor, an array, or an iterable."""
Course = Mapping[Any, Sequence[float]]
"""The values of all seeds, by the step or the name at which they were measured."""


def _to_tuple(values: PointValues) -> tuple[Any, ...]:
    """Return values as a tuple of Python's own numbers, or of what an iterable yields."""
    return tuple(values.tolist() if hasattr(values, "tolist") else values)


def make_mark(
    kind: str, x: PointValues = (), y: PointValues = (), *, low: PointValues = (), high: PointValues = (), **rest: Any
) -> Mark:
    """Make a mark of any ``kind`` from columns of one length; ``rest`` are other fields of ``Mark``."""
    return Mark(kind, x=_to_tuple(x), y=_to_tuple(y), low=_to_tuple(low), high=_to_tuple(high), **rest)


def make_heatmap(z: Iterable[PointValues], **rest: Any) -> Mark:
    """Make a heatmap of a matrix, its first row on top, None for an empty cell; ``rest``: other fields of ``Mark``."""
    return Mark("heatmap", z=tuple(_to_tuple(row) for row in z), **rest)


def make_reference_line(y: float, label: str) -> Mark:
    """Make a horizontal line at the value of a reference, such as chance."""
    return Mark("hline", y=(y,), label=label, emphasis="reference")


def draw_columns(
    kind: Literal["line", "points", "bars", "stack"],
    x: PointValues,
    columns: Mapping[str, PointValues | None],
    *,
    title: str = "",
    main: str = "",
    reference: Collection[str] = (),
    intervals: Mapping[str, tuple[PointValues, PointValues]] | None = None,
    points: Mapping[str, PointValues | None] | None = None,
    levels: Mapping[str, Number] | None = None,
    sideways: bool = False,
    height: Number = 0.62,
    panel: str = "",
    **rest: Any,
) -> Figure:
    """Draw columns of numbers over one x, each by its label; those that are None are left out.

    Args:
        kind: how they are drawn.
        x: numbers, or names. None where each column is a mapping of its own x to its y.
        columns: by label.
        title: what the figure shows.
        main: the label of the column to look at.
        reference: the labels of columns that others are compared with.
        intervals: the low and the high ends of a column.
        points: further columns that others are compared with, drawn as points.
        levels: numbers that others are compared with, drawn as horizontal lines.
        sideways: whether x runs down the side: for long names.
        height: of the panel, relative to its width.
        panel: its title.
        rest: other fields of ``Panel``.
    """
    common = None if x is None else _to_tuple(x)

    def mark(kind: str, label: str, y: PointValues, emphasis: Any) -> Mark:
        low, high = (intervals or {}).get(label, ((), ()))
        axes = (tuple(y), tuple(y.values())) if common is None else (common, y)
        across, up = reversed(axes) if sideways else axes
        return make_mark(kind, across, up, label=label, low=low, high=high, emphasis=emphasis)

    marks = [
        mark(kind, label, y, "reference" if label in reference else "main" if label == main else "")
        for label, y in columns.items()
        if y is not None
    ]
    marks += [mark("points", label, y, "reference") for label, y in (points or {}).items() if y is not None]
    marks += [make_reference_line(y, label) for label, y in (levels or {}).items()]
    return Figure((Panel(tuple(marks), title=panel, **rest),), title=title, height=height)


def draw_seeds(courses: Mapping[str, Course], *, title: str = "", panel: str = "", **rest: Any) -> Figure:
    """Draw lines of means over seeds, by label, with bands from the lowest to the highest; ``rest`` as above."""
    marks = []
    for label, course in courses.items():
        x, seeds = tuple(course), course.values()
        marks.append(make_mark("band", x, label=label, low=map(min, seeds), high=map(max, seeds)))
        marks.append(make_mark("line", x, [sum(values) / len(values) for values in seeds], label=label))
    return Figure((Panel(tuple(marks), title=panel, **rest),), title=title)


def draw_heatmap(
    z: Iterable[PointValues], *, title: str = "", panel: str = "", xlabel: str = "", ylabel: str = "", **mark: Any
) -> Figure:
    """Draw a matrix as colours, its first row on top; ``mark``: other fields of ``Mark``."""
    return Figure((Panel((make_heatmap(z, **mark),), panel, xlabel, ylabel),), title=title)


def put_together(figures: Iterable[Figure], **rest: Any) -> Figure:
    """Return one figure with the panels of several; ``rest``: other fields of ``Figure``."""
    return Figure(tuple(panel for figure in figures for panel in figure.panels), **rest)
