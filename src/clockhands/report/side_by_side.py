"""Two sets of findings as one: both in each figure, and how far apart the values are in each verdict."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from clockhands.findings import Figure, Finding, Findings, Light, Panel, Scalar, Table, join_words
from clockhands.report.text import format_quantity

_WORST: tuple[Light, ...] = ("bad", "warn", "info", "good", "skip")
"""The lights from the worst to the best; a common finding has the worse of its two."""


def put_side_by_side(a: Findings, b: Findings) -> Findings:
    """Return the findings of ``a`` and ``b`` together; those that only one of them has stay, and say whose they are.

    The value of a common finding is B − A. Findings that do not depend on the same basis (text, tokenizer) are not put
    together: each stands alone, and says in what the two differ. No interval is given for a difference: those of A and
    B do not determine one.
    """
    first, second = (str(findings.facts.get("model") or findings.title) for findings in (a, b))
    names = (first, second) if first != second else (f"{first} (A)", f"{second} (B)")
    mine, other = ({item.name: item for item in findings} for findings in (a, b))
    both = dict.fromkeys([*mine, *other])
    facts: dict[str, Scalar] = {"A": names[0], "B": names[1]}
    for key in dict.fromkeys([*a.facts, *b.facts]):
        values = a.facts.get(key), b.facts.get(key)
        if values[0] == values[1]:
            facts[key] = values[0]
        elif key != "model":
            facts |= {f"{key}, {side}": value for side, value in zip("AB", values, strict=True) if value is not None}
    items = tuple(item for name in both for item in _combine_findings(names, mine.get(name), other.get(name)))
    return Findings(
        title=f"{names[0]} and {names[1]}",
        items=items,
        facts=facts,
        signature=a.signature if a.signature == b.signature else f"{a.signature} ‖ {b.signature}",
        command="\n".join(dict.fromkeys(command for command in (a.command, b.command) if command)),
        opening=tuple(dict.fromkeys((*a.opening, *b.opening))),
    )


def _combine_findings(names: tuple[str, str], a: Finding | None, b: Finding | None) -> tuple[Finding, ...]:
    """Return one finding made of two, or both apart where they are not comparable; what only one has as it is."""
    if a is None or b is None:
        only = (("A", names[0], a), ("B", names[1], b))
        return tuple(
            replace(item, verdict=f"Measured in {side} only ({name}). {item.verdict}")
            for side, name, item in only
            if item is not None
        )
    differ = [key for key in a.basis if key in b.basis and a.basis[key] != b.basis[key]]
    if "skip" in (a.light, b.light) or not differ:
        return (_pair_findings(names, a, b),)
    why = f"A and B differ in {join_words(differ)}"
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


def _pair_findings(names: tuple[str, str], a: Finding, b: Finding) -> Finding:
    """Return one finding made of two comparable ones."""
    if a.light == b.light == "skip":
        same = a.verdict == b.verdict
        return a if same else replace(a, verdict=f"A: {a.verdict} B: {b.verdict}")
    lead = b if a.light == "skip" else a
    details = {key: value for key, value in lead.details.items() if key == "group"}
    verdict, difference = f"A: {a.verdict}\nB: {b.verdict}", None
    if isinstance(a.value, (int, float)) and isinstance(b.value, (int, float)) and a.unit == b.unit:
        difference = float(b.value) - float(a.value)
        verdict += f"\nDifference B − A: {format_quantity(difference, a.unit)}"
        if a.interval and b.interval:
            apart = a.interval[1] < b.interval[0] or b.interval[1] < a.interval[0]
            verdict += "; the intervals do not overlap" if apart else "; the intervals overlap"
        verdict += "."
    return replace(
        lead,
        verdict=verdict,
        value=difference,
        unit="" if difference is None else f"{a.unit} B − A".strip(),
        interval=None,
        references=(),
        light=min(a.light, b.light, key=_WORST.index),
        table=_combine_tables(a.table, b.table),
        figure=_combine_figures(a.figure, b.figure),
        details={
            **details,
            "A": format_quantity(a.value, a.unit, a.interval, a.verdict),
            "B": format_quantity(b.value, b.unit, b.interval, b.verdict),
        },
    )


def _combine_tables(a: Table, b: Table) -> Table:
    """Return one table with a column that says whose row it is; cells of a column that one side lacks stay empty."""
    columns = tuple(dict.fromkeys([*a.columns, *b.columns]))
    rows: list[tuple[Scalar, ...]] = []
    for side, table in (("A", a), ("B", b)):
        for row in table.rows:
            cells = dict(zip(table.columns, row, strict=True))
            rows.append((side, *(cells.get(column) for column in columns)))
    return Table(("side", *columns), tuple(rows)) if rows else Table()


def _combine_figures(a: Figure | None, b: Figure | None) -> Figure | None:
    """Return the panels of both: single columns in pairs, and grids one after the other."""
    if a is None or b is None:
        only = a or b
        return replace(only, panels=_label_panels("A" if a else "B", only)) if only else None
    captions = " ".join(dict.fromkeys(caption for caption in (a.caption, b.caption) if caption))
    if a.columns == b.columns == 1:
        pairs = zip_longest(_label_panels("A", a), _label_panels("B", b), fillvalue=Panel(()))
        panels = tuple(panel for pair in pairs for panel in pair)
        return Figure(panels, captions, columns=2, height=max(a.height, b.height, 0.62), title=a.title)
    columns = max(a.columns, b.columns)
    gap = (Panel(()),) * (-len(a.panels) % columns)
    panels = (*_label_panels("A", a), *gap, *_label_panels("B", b))
    return Figure(panels, captions, columns=columns, height=max(a.height, b.height), title=a.title)


def _label_panels(side: str, figure: Figure) -> tuple[Panel, ...]:
    """Return the panels of a figure with the side in front of their titles."""
    return tuple(replace(panel, title=f"{side} · {panel.title}" if panel.title else side) for panel in figure.panels)
