"""Two sets of findings as one: both in each figure, and how far apart the values are in each verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from clockhands.findings import Figure, Finding, Findings, Light, Panel, Scalar, Table
from clockhands.report.text import listed, quantity

_WORST: tuple[Light, ...] = ("bad", "warn", "info", "good", "skip")


def side_by_side(a: Findings, b: Findings) -> Findings:
    """Return what ``a`` and ``b`` found, together; names that only one of them has stay, and say whose they are.

    The value of a common finding is B − A. Findings that do not rest on the same basis (text, tokenizer) are not put
    together: each stands alone, and says in what the two differ. No interval is given for a difference: those of A and
    B do not determine one.
    """
    names = _names(a, b)
    mine, other = ({item.name: item for item in findings} for findings in (a, b))
    both = dict.fromkeys([*mine, *other])
    items = tuple(item for name in both for item in _together(names, mine.get(name), other.get(name)))
    return Findings(
        title=f"{names[0]} and {names[1]}",
        items=items,
        facts=_facts(names, a, b),
        signature=a.signature if a.signature == b.signature else f"{a.signature} ‖ {b.signature}",
        command="\n".join(dict.fromkeys(command for command in (a.command, b.command) if command)),
    )


def _names(a: Findings, b: Findings) -> tuple[str, str]:
    first, second = (str(findings.facts.get("model") or findings.title) for findings in (a, b))
    return (first, second) if first != second else (f"{first} (A)", f"{second} (B)")


def _facts(names: tuple[str, str], a: Findings, b: Findings) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {"A": names[0], "B": names[1]}
    for key in dict.fromkeys([*a.facts, *b.facts]):
        values = a.facts.get(key), b.facts.get(key)
        if values[0] == values[1]:
            facts[key] = values[0]
        elif key != "model":
            facts |= {f"{key}, {side}": value for side, value in zip("AB", values, strict=True) if value is not None}
    return facts


def _together(names: tuple[str, str], a: Finding | None, b: Finding | None) -> tuple[Finding, ...]:
    """One finding of two, or both apart where they are not comparable."""
    if a is None or b is None or "skip" in (a.light, b.light):
        return (_pair(names, a, b),)
    differ = [key for key in a.basis if key in b.basis and a.basis[key] != b.basis[key]]
    if not differ:
        return (_pair(names, a, b),)
    why = f"A and B differ in {listed(differ)}"
    return tuple(
        replace(
            item,
            name=f"{item.name}.{side}",
            question=f"{side}: {item.question}",
            verdict=f"{name}: {item.verdict} Not comparable with {other}: {why}.",
            details={**item.details, "not comparable": why},
        )
        for item, side, name, other in ((a, "A", names[0], "B"), (b, "B", names[1], "A"))
    )


def _pair(names: tuple[str, str], a: Finding | None, b: Finding | None) -> Finding:
    if a is None or b is None:
        only = a or b
        assert only is not None
        side, name = ("A", names[0]) if a else ("B", names[1])
        return replace(only, verdict=f"Measured in {side} only ({name}). {only.verdict}")
    if a.light == b.light == "skip":
        same = a.verdict == b.verdict
        return a if same else replace(a, verdict=f"A: {a.verdict} B: {b.verdict}")
    lead = b if a.light == "skip" else a
    details = {"group": lead.details["group"]} if "group" in lead.details else {}
    return replace(
        lead,
        verdict=f"A: {a.verdict}\nB: {b.verdict}{_difference_sentence(a, b)}",
        value=_difference(a, b),
        unit="" if _difference(a, b) is None else f"{a.unit} B − A".strip(),
        interval=None,
        references=(),
        light=min(a.light, b.light, key=_WORST.index),
        table=_tables(a.table, b.table),
        figure=_figures(a.figure, b.figure),
        details={**details, "A": quantity(a.value, a.unit), "B": quantity(b.value, b.unit)},
    )


def _difference(a: Finding, b: Finding) -> float | None:
    if isinstance(a.value, (int, float)) and isinstance(b.value, (int, float)) and a.unit == b.unit:
        return float(b.value) - float(a.value)
    return None


def _difference_sentence(a: Finding, b: Finding) -> str:
    difference = _difference(a, b)
    if difference is None:
        return ""
    sentence = f"\nDifference B − A: {quantity(difference, a.unit)}"
    if a.interval and b.interval:
        apart = a.interval[1] < b.interval[0] or b.interval[1] < a.interval[0]
        sentence += "; the intervals do not overlap" if apart else "; the intervals overlap"
    return f"{sentence}."


def _tables(a: Table, b: Table) -> Table:
    """One table with a column that says whose row it is; a column only one has stays empty for the other."""
    columns = tuple(dict.fromkeys([*a.columns, *b.columns]))
    rows: list[tuple[Scalar, ...]] = []
    for side, table in (("A", a), ("B", b)):
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            rows.append((side, *(cells.get(column) for column in columns)))
    return Table(("side", *columns), tuple(rows)) if rows else Table()


def _figures(a: Figure | None, b: Figure | None) -> Figure | None:
    """Single panels stand in pairs; a grid of A is followed by the grid of B."""
    if a is None or b is None:
        only = a or b
        return replace(only, panels=_signed("A" if a else "B", only)) if only else None
    captions = " ".join(dict.fromkeys(caption for caption in (a.caption, b.caption) if caption))
    if a.columns == b.columns == 1:
        pairs = zip_longest(_signed("A", a), _signed("B", b), fillvalue=Panel(()))
        panels = tuple(panel for pair in pairs for panel in pair)
        return Figure(panels, captions, columns=2, height=max(a.height, b.height, 0.62))
    columns = max(a.columns, b.columns)
    gap = (Panel(()),) * (-len(a.panels) % columns)
    panels = (*_signed("A", a), *gap, *_signed("B", b))
    return Figure(panels, captions, columns=columns, height=max(a.height, b.height))


def _signed(side: str, figure: Figure) -> tuple[Panel, ...]:
    return tuple(replace(panel, title=f"{side} · {panel.title}" if panel.title else side) for panel in figure.panels)
