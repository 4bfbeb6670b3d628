"""What was measured inside the models of a comparison."""

from __future__ import annotations

from clockhands.comparison.verdict_findings import conclude
from tests.comparison.planted import results


def test_the_figure_names_the_rows_of_the_table() -> None:
    found = conclude(results())["inside.loud"]
    names = tuple(row[0] for row in found.table.rows)
    panel = found.figure.panels[0]
    assert [mark.y for mark in panel.marks if mark.kind == "points"] in ([names, names], [])
    assert set(names) == {"base", "better", "same", "worse"}
