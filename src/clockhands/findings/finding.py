"""What every measurement returns, and the file that keeps it.

A finding holds a value with its interval, the references that it is compared with (each by its name: untrained, chance,
rows shuffled), the table behind it, a verdict of one sentence, how it was measured, and the command that measures it
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from clockhands.errors import DataError
from clockhands.files import write_text
from clockhands.findings.figure import Figure, Number, Scalar, make_tuples, read_figure
from clockhands.reading import parse_json, read_document


def choose_digits(low: float, high: float, digits: int, write: Callable[[float, int], str] = "{:.{}f}".format) -> int:
    """Return how many digits to write both ends of an interval with, so that different ends look different.

    That is ``digits``, or up to six more; ``digits`` too where the ends are equal, or six more show no difference.
    ``write`` writes a number with so many digits; by default as decimals.
    """
    more = (places for places in range(digits, digits + 7) if write(low, places) != write(high, places))
    return digits if low == high else next(more, digits)


def join_words(words: Iterable[str]) -> str:
    """Return words as an enumeration: ``a, b and c``; ``none`` where there are none."""
    *first, last = list(words) or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


Light = Literal["good", "warn", "bad", "info", "skip"]
"""The colour in which a finding is shown."""
SCHEMA = 2
"""The version of the JSON that ``Findings.to_json`` writes."""
SHARE = "share"
"""The unit of shares, of which 1 is the whole; pages and verdicts show them in percent."""


@dataclass(frozen=True)
class Table:
    """Named columns, and rows with one plain value for each column."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Scalar, ...], ...] = ()

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """Make a table of any sequences; numbers of NumPy and PyTorch become Python's.

        Raises ValueError if a row has another number of values than there are columns.
        """
        made = cls(tuple(columns), tuple(tuple(_make_plain(cell) for cell in row) for row in rows))
        for row in made.rows:
            if len(row) != len(made.columns):
                raise ValueError(
                    f"a row has {len(row)} values for the {len(made.columns)} columns {made.columns}: {row}"
                )
        return made


@dataclass(frozen=True)
class Reference:
    """What a value is compared with: a name for the reader (``untrained``, ``chance``), a value and its interval."""

    name: str
    value: Number
    interval: tuple[Number, Number] | None = None


@dataclass(frozen=True)
class Finding:
    """One measured answer.

    Args:
        name: a stable identifier, such as ``loudness.ratio``.
        question: what was measured, as the question that a reader would ask; the heading on a page.
        verdict: one sentence with the value and what it is compared with.
        value: the result, in ``unit``.
        interval: the 95 % interval of the value, unless ``method`` says what else its two ends are: the lowest and the
            highest seed, or two counts.
        references: what the value is compared with, the most important first.
        light: the colour in which it is shown; ``skip``: it does not apply, and ``verdict`` says why.
        table: the numbers behind the value.
        figure: a drawing of them.
        method: how it was measured.
        source: the paper and equation that the measure follows.
        command: the command that measures it again.
        details: further results, by name.
        basis: what the value depends on besides the model (text, tokenizer, ...); two findings are comparable if their
            bases are equal.
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
        """Return the reference of this name, or None if the finding has no such reference."""
        return next((reference for reference in self.references if reference.name == name), None)


@dataclass(frozen=True)
class Findings:
    """The findings of one command, in the order in which a page shows them.

    ``facts`` are the lines at the top of a page (model, mechanism, data, versions). ``signature`` is the short string
    that is quoted beside a number: it says with which settings and versions it was measured. ``opening`` names the
    findings with which a page begins, as cards; one with a text under ``details["opening"]`` stands above these.
    """

    title: str
    items: tuple[Finding, ...]
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    signature: str = ""
    command: str = ""
    opening: tuple[str, ...] = ()

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
        """Return the findings as one JSON document, which ``from_json`` reads back.

        NaN is written as null, and the sequences in ``details`` and ``facts`` come back as lists.
        """
        return json.dumps({"schema": SCHEMA, **_make_plain(asdict(self))}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Findings:
        """Read what ``to_json`` wrote. Raises DataError on anything else."""
        try:
            raw = parse_json(text)
            schema = raw.pop("schema")
            if schema != SCHEMA:
                raise DataError(
                    f"the findings have schema {schema}; this version reads schema {SCHEMA}: run the command again"
                )
            items = tuple(_read_finding(item) for item in raw.pop("items"))
            return cls(items=items, opening=tuple(raw.pop("opening", ())), **raw)
        except KeyError as fault:
            raise DataError(f"this is no findings file: it has no {fault.args[0]!r}") from fault
        except (TypeError, AttributeError, ValueError) as fault:
            raise DataError(f"this is no findings file: {fault}") from fault

    def save(self, path: str | Path) -> Path:
        """Write the findings as JSON to a file, whole or not at all, and return its path. Raises DataError."""
        return write_text(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Findings:
        """Read a file that ``save`` wrote. Raises DataError, with the path, for any other or none."""
        text = read_document(path, DataError, "the findings in")
        try:
            return cls.from_json(text)
        except DataError as fault:
            raise DataError(f"cannot read the findings in {path}: {fault}") from fault

    def _repr_html_(self) -> str:
        if _html_renderer is None:
            raise NotImplementedError("import clockhands.report to draw findings")
        return _html_renderer(self)


_html_renderer: Callable[[Findings], str] | None = None


def set_html_renderer(renderer: Callable[[Findings], str]) -> None:
    """Set the function that draws findings as HTML in a notebook; ``clockhands.report`` sets its own when imported."""
    global _html_renderer
    _html_renderer = renderer


def _make_plain(value: Any) -> Any:
    """Return a value of NumPy, PyTorch or a dataclass as Python's own scalars, lists and dicts; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(key): _make_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _make_plain(value.tolist())
    if isinstance(value, float) and value != value:
        return None
    return value


def _read_finding(raw: dict[str, Any]) -> Finding:
    """Read a finding from its JSON object; only the lists in its details stay lists."""
    details, rest = raw.pop("details"), make_tuples(raw)
    references = tuple(Reference(**reference) for reference in rest.pop("references"))
    table, figure = Table(**rest.pop("table")), rest.pop("figure")
    drawn = read_figure(figure) if figure else None
    return Finding(**rest, references=references, table=table, figure=drawn, details=details)
