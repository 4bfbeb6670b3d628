"""Refuses figures that contradict themselves, with the place and what to change, before anything is drawn."""

from __future__ import annotations

from typing import get_args

from clockhands.errors import DataError, unknown
from clockhands.findings import Figure, Mark, MarkKind, Scalar

_NEEDS = {"hline": ("y",), "vline": ("x",), "band": ("low", "high"), "arrows": ("x", "y"), "text": ("x", "y", "names")}
_NUMERIC = {"low", "high"}


def check_figure(figure: Figure, name: str) -> None:
    """Raise DataError for the first mark that cannot be drawn as it is."""
    if not figure.panels:
        raise DataError(f"figure {name!r} has no panels; leave the figure out instead")
    if figure.columns < 1:
        raise DataError(f"figure {name!r} has {figure.columns} columns; it needs at least 1")
    for number, panel in enumerate(figure.panels, 1):
        for place, mark in enumerate(panel.marks, 1):
            where = f"figure {name!r}, panel {number}, mark {place} ({mark.kind} {mark.label!r})"
            if mark.kind not in get_args(MarkKind):
                raise DataError(f"{where}: {unknown('mark kind', mark.kind, get_args(MarkKind))}")
            _check_mark(mark, where)
        for axis, scale in (("x", panel.xscale), ("y", panel.yscale)):
            if scale not in ("linear", "log"):
                choice = unknown(f"{axis} scale", scale, ("linear", "log"))
                raise DataError(f"figure {name!r}, panel {number}: {choice}")


def _check_mark(mark: Mark, where: str) -> None:
    if mark.kind == "heatmap":
        return _check_heatmap(mark, where)
    for needed in _NEEDS.get(mark.kind, ("y",)):
        if not getattr(mark, needed):
            raise DataError(f"{where} has no {needed}; a {mark.kind} cannot be drawn without it")
    if bool(mark.low) != bool(mark.high):
        raise DataError(f"{where} has only one of low and high; give both or neither")
    if mark.kind not in ("hline", "vline"):
        _check_lengths(mark, where)
    return _check_numbers(mark, where)


def _check_lengths(mark: Mark, where: str) -> None:
    fields = ("x", "y", "low", "high", "names")
    lengths = {field: len(getattr(mark, field)) for field in fields if getattr(mark, field)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} {field}" for field, count in lengths.items())
        raise DataError(f"{where} has {counts}; there must be equally many of each")


def _check_numbers(mark: Mark, where: str) -> None:
    worded = _worded(mark.x), _worded(mark.y)
    if all(worded):
        raise DataError(f"{where} has words on both axes; one of x and y must be numbers")
    if any(_worded(getattr(mark, field)) for field in _NUMERIC):
        raise DataError(f"{where} has words among low and high; they must be numbers")


def _check_heatmap(mark: Mark, where: str) -> None:
    widths = {len(row) for row in mark.z}
    if len(widths) != 1 or widths == {0}:
        raise DataError(f"{where} has rows of {sorted(widths)} values in z; it needs rows of one length")
    rows, columns = len(mark.z), widths.pop()
    expected = {"x": columns, "y": rows, "names": rows * columns}
    for field, count in expected.items():
        given = len(getattr(mark, field))
        if given not in (0, count):
            raise DataError(f"{where} has {given} {field} for {rows} rows and {columns} columns; it needs {count}")


def _worded(values: tuple[Scalar, ...] | tuple[float, ...]) -> bool:
    return any(isinstance(value, str) for value in values)
