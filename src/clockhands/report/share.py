"""Panels that show the same quantities share limits, and say so once: names and numbers only on the outer edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.figure import Figure as Canvas

from clockhands.report.marks import Pen
from clockhands.report.text import visible

Axis = Literal["x", "y"]


def share_axes(canvas: Canvas, pens: Sequence[Pen], columns: int, *, dense: bool) -> None:
    """``dense`` panels are too small for labels of their own: one label then stands for the whole figure."""
    drawn = [pen for pen in pens if pen.panel.marks]
    axes: tuple[Axis, Axis] = ("x", "y")
    for axis in axes:
        alike = _alike(drawn, axis)
        if len(drawn) < 2 or not alike:
            continue
        if _can_join(drawn, axis):
            _join(drawn, axis)
            _keep_outer(pens, columns, axis)
        if dense:
            _one_label(canvas, drawn, axis)


def _label(pen: Pen, axis: Axis) -> str:
    return pen.panel.xlabel if axis == "x" else pen.panel.ylabel


def _alike(pens: Sequence[Pen], axis: Axis) -> bool:
    """The same name, the same scale and the same categories on this axis."""
    keys = {
        (_label(pen, axis), *((pen.panel.xscale, *pen.x.names) if axis == "x" else (pen.panel.yscale, *pen.y.names)))
        for pen in pens
    }
    return len(keys) == 1


def _can_join(pens: Sequence[Pen], axis: Axis) -> bool:
    return bool(_label(pens[0], axis)) and not any(pen.panel.equal for pen in pens) and len(_cells(pens, axis)) < 2


def _cells(pens: Sequence[Pen], axis: Axis) -> set[int]:
    """How many cells the heatmaps have along this axis; pictures of different sizes keep their own limits."""
    maps = [mark.z for pen in pens for mark in pen.panel.marks if mark.kind == "heatmap"]
    return {len(z[0]) if axis == "x" else len(z) for z in maps}


def _join(pens: Sequence[Pen], axis: Axis) -> None:
    """The widest limits for all, unless a panel brings limits of its own."""
    own = [pen.panel.xlim if axis == "x" else pen.panel.ylim for pen in pens]
    limits = [pen.ax.get_xlim() if axis == "x" else pen.ax.get_ylim() for pen in pens]
    if any(own) and len({*own}) > 1:
        return
    low, high = min(min(pair) for pair in limits), max(max(pair) for pair in limits)
    turned = limits[0][0] > limits[0][1]
    for pen in pens:
        pair = (high, low) if turned else (low, high)
        if axis == "x":
            pen.ax.set_xlim(pair)
        else:
            pen.ax.set_ylim(pair)


def _keep_outer(pens: Sequence[Pen], columns: int, axis: Axis) -> None:
    for index, pen in enumerate(pens):
        below = index + columns
        hidden = below < len(pens) and bool(pens[below].panel.marks) if axis == "x" else index % columns > 0
        if hidden and (pen.ax.get_xlim() if axis == "x" else pen.ax.get_ylim()):
            pen.ax.tick_params(axis=axis, labelbottom=axis != "x", labelleft=axis != "y")
            (pen.ax.set_xlabel if axis == "x" else pen.ax.set_ylabel)("")


def _one_label(canvas: Canvas, pens: Sequence[Pen], axis: Axis) -> None:
    text = visible(_label(pens[0], axis))
    for pen in pens:
        (pen.ax.set_xlabel if axis == "x" else pen.ax.set_ylabel)("")
    if text:
        (canvas.supxlabel if axis == "x" else canvas.supylabel)(text, fontsize=10.5)
