"""The table of verdicts for papers and spreadsheets."""

from __future__ import annotations

import csv
import io

from clockhands.comparison.formats import write_markdown, write_trials
from tests.comparison.planted import results


def test_tables_for_papers_and_spreadsheets() -> None:
    made = results()
    assert write_markdown(made).splitlines()[2].startswith("| base | ")
    assert made.signature in write_markdown(made)
    shown = {row.split(" | ")[0][2:]: row.split(" | ")[4] for row in write_markdown(made).splitlines()[2:6]}
    assert shown["base"] == "" and shown["better"] == shown["worse"] == "< 0.001" and float(shown["same"]) > 0.05
    rows = list(csv.DictReader(io.StringIO(write_trials(made))))
    assert len(rows) == 24 and rows[0]["variant"] == "base" and rows[0]["status"] == "finished"
