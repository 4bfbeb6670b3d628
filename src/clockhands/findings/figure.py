"""Figures as data: panels of marks, which the pages draw."""

from __future__ import annotations

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
