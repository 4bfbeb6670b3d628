"""Finding: what every measurement returns. Plain data: it knows nothing of models, and pages are drawn from it.

A number never stands alone: it carries its interval, what it is compared with (each reference by its name: untrained,
chance, rows shuffled), the table behind it, one sentence of verdict, how it was measured and the command that measures
it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from clockhands.errors import DataError
from clockhands.files import write_text

Number: TypeAlias = float | int
Scalar: TypeAlias = str | Number | bool | None
Light = Literal["good", "warn", "bad", "info", "skip"]
SCHEMA = 2
_READ = (1, 2)
"""Schemas that ``from_json`` reads. In schema 1 a finding had one reference without a name, called ``null``."""


@dataclass(frozen=True)
class Table:
    """Named columns and rows of plain values."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Scalar, ...], ...] = ()

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """Build from any sequences; numbers of NumPy and torch become Python's."""
        return cls(tuple(columns), tuple(tuple(_plain(cell) for cell in row) for row in rows))


@dataclass(frozen=True)
class Mark:
    """One thing drawn in a panel.

    ``kind`` is a name in ``KINDS`` of ``clockhands.report.figures.mark_kinds``, whose classes say which fields they
    draw: ``line``, ``points``, ``bars``, ``stack`` and ``band`` use ``x`` and ``y`` or ``low`` and ``high``,
    ``heatmap`` uses ``z``, ``hline`` and ``vline`` stand at ``y`` or ``x``. ``names`` gives each point its hover text.
    ``emphasis``: ``reference`` marks what a value is compared with, drawn grey and dashed; ``main`` the one to look at.
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
    """One pair of axes."""

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
    """Panels in a grid of ``columns`` (4 at most are drawn); ``height`` is one panel's height relative to its width."""

    panels: tuple[Panel, ...]
    caption: str = ""
    columns: int = 1
    height: Number = 0.62


@dataclass(frozen=True)
class Reference:
    """What a value is compared with: its name as a reader knows it (``untrained``, ``chance``), value and interval."""

    name: str
    value: Number
    interval: tuple[Number, Number] | None = None


@dataclass(frozen=True)
class Finding:
    """One measured answer.

    ``name`` is a stable identifier (``loudness.ratio``); ``question`` a heading in a person's words; ``verdict`` one
    sentence with its number and what that is compared with; ``references`` the same as numbers, the most important
    first; ``basis`` what the value depends on besides the model (text, tokenizer, ...): two findings are comparable
    where that is alike; ``light`` how to colour it (``skip``: does not apply, and ``verdict`` says why).
    """

    name: str
    question: str
    verdict: str
    value: Number | str | None = None
    unit: str = ""
    interval: tuple[Number, Number] | None = None
    references: tuple[Reference, ...] = ()
    light: Light = "info"
    table: Table = field(default_factory=Table)
    figure: Figure | None = None
    method: str = ""
    source: str = ""
    command: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    basis: Mapping[str, str] = field(default_factory=dict)

    def reference(self, name: str) -> Reference | None:
        """Return the reference of this name; None if the value has none such."""
        return next((reference for reference in self.references if reference.name == name), None)


@dataclass(frozen=True)
class Findings:
    """The findings of one run of one instrument, in the order a reader should meet them.

    ``facts`` are the few lines that stand on top of a page (model, mechanism, data, versions); ``signature`` is the
    compact string that goes with any number quoted elsewhere.
    """

    title: str
    items: tuple[Finding, ...]
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    signature: str = ""
    command: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, name: str) -> Finding:
        for item in self.items:
            if item.name == name:
                return item
        raise KeyError(f"no finding named {name!r}; there are {', '.join(item.name for item in self.items)}")

    def to_json(self) -> str:
        """One JSON document; ``from_json`` reads it back exactly."""
        return json.dumps({"schema": SCHEMA, **_plain(asdict(self))}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """Read what ``to_json`` wrote. Raises DataError on anything else."""
        try:
            raw = json.loads(text)
            schema = raw.pop("schema")
            if schema not in _READ:
                raise DataError(
                    f"the findings have schema {schema}; this version reads schemas 1 and 2: run the command again"
                )
            items = tuple(_finding(item) for item in raw.pop("items"))
            return cls(items=items, **raw)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as fault:
            raise DataError(f"this is no findings file: {fault}") from fault

    def save(self, path: str | Path) -> Path:
        """Write ``findings.json``; a half-written file never takes the name."""
        return write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Findings:
        """Read a file that ``save`` wrote. Raises DataError if it is missing or something else."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf8"))
        except OSError as fault:
            raise DataError(f"cannot read findings from {path}: {fault.strerror or fault}") from fault

    def _repr_html_(self) -> str:
        if _html_renderer is None:
            raise NotImplementedError("import clockhands.report to draw findings")
        return _html_renderer(self)


_html_renderer: Callable[[Findings], str] | None = None


def set_html_renderer(renderer: Callable[[Findings], str]) -> None:
    """The report registers itself here, so that findings can show themselves without knowing it."""
    global _html_renderer
    _html_renderer = renderer


def digits_apart(low: Any, high: Any, digits: int, write: Callable[[Any, int], str] | None = None) -> int:
    """The digits that both ends of an interval are written with: ``digits``, or more (six at most) to tell them apart.

    ``write``: how an end is written with so many digits; decimals by default.
    """
    write = write or (lambda value, places: f"{value:.{places}f}")
    more = (places for places in range(digits, digits + 7) if write(low, places) != write(high, places))
    return digits if low == high else next(more, digits)


def _plain(value: Any) -> Any:
    """Python's own scalars, lists and dicts of whatever NumPy, torch or a dataclass held."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and value != value:
        return None
    return value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _finding(raw: dict[str, Any]) -> Finding:
    table = Table(**{key: _tuples(item) for key, item in raw.pop("table").items()})
    figure = raw.pop("figure")
    details = raw.pop("details")
    references = _references(raw)
    rest = {key: _tuples(item) for key, item in raw.items()}
    return Finding(
        **rest, references=references, table=table, figure=_figure(figure) if figure else None, details=details
    )


def _references(raw: dict[str, Any]) -> tuple[Reference, ...]:
    """Take the references out of a finding; of schema 1 its only one, whose name was not kept."""
    value, span = raw.pop("null", None), raw.pop("null_interval", None)
    old = () if value is None else (Reference("reference", value, _tuples(span)),)
    new = (Reference(**{key: _tuples(item) for key, item in each.items()}) for each in raw.pop("references", ()))
    return (*old, *new)


def _figure(raw: dict[str, Any]) -> Figure:
    panels = tuple(_panel(panel) for panel in raw.pop("panels"))
    return Figure(panels=panels, **{key: _tuples(item) for key, item in raw.items()})


def _panel(raw: dict[str, Any]) -> Panel:
    marks = tuple(_mark(mark) for mark in raw.pop("marks"))
    return Panel(marks=marks, **{key: _tuples(item) for key, item in raw.items()})


def _mark(raw: dict[str, Any]) -> Mark:
    """Read a mark; older files call the emphasis of a reference ``null``."""
    fields = {key: _tuples(item) for key, item in raw.items()}
    return Mark(**{**fields, "emphasis": "reference"} if fields.get("emphasis") == "null" else fields)
