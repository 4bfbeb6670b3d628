"""Shares as a reader sees them: in percent, on the axes and on the colour bars that begin with the word."""

from __future__ import annotations

from dataclasses import replace

from clockhands.findings import Figure, Mark, Number, Panel, Scalar
from clockhands.report.text import scale_unit


def show_percent(figure: Figure) -> Figure:
    """Return the figure with every axis and colour bar whose label begins with "share" in percent."""
    return replace(figure, panels=tuple(_convert_panel(panel) for panel in figure.panels))


def _convert_panel(panel: Panel) -> Panel:
    """Return the panel with its labels, limits and marks in the units that a reader sees."""
    (across, xlabel), (up, ylabel) = scale_unit(panel.xlabel), scale_unit(panel.ylabel)
    marks = tuple(_convert_mark(mark, across, up) for mark in panel.marks)
    if across == up == 1.0:
        return replace(panel, marks=marks)
    xlim, ylim = _scale_ends(panel.xlim, across), _scale_ends(panel.ylim, up)
    return replace(panel, marks=marks, xlabel=xlabel, ylabel=ylabel, xlim=xlim, ylim=ylim)


def _convert_mark(mark: Mark, across: float, up: float) -> Mark:
    """Return the mark with its numbers multiplied; ``low`` and ``high`` are of the axis that has no names."""
    inside, label = scale_unit(mark.label) if mark.z else (1.0, mark.label)
    if across == up == inside == 1.0:
        return mark
    along = across if any(isinstance(value, str) for value in mark.y) else up
    return replace(
        mark,
        label=label,
        x=tuple(_scale(value, across) for value in mark.x),
        y=tuple(_scale(value, up) for value in mark.y),
        low=tuple(value * along for value in mark.low),
        high=tuple(value * along for value in mark.high),
        z=tuple(tuple(None if value is None else value * inside for value in row) for row in mark.z),
    )


def _scale(value: Scalar, factor: float) -> Scalar:
    """Return a number multiplied; names stay."""
    return value * factor if isinstance(value, (int, float)) and factor != 1.0 else value


def _scale_ends(ends: tuple[Number, Number] | None, factor: float) -> tuple[Number, Number] | None:
    """Return both ends of an axis multiplied; None where it finds its own."""
    return ends and (ends[0] * factor, ends[1] * factor)
