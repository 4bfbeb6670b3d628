"""A spreadsheet computes nothing of what a table holds, and a program reads every number back."""

from __future__ import annotations

import csv
import io

import pytest

from clockhands.findings.csv_text import write_csv


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x","y")'])
def test_a_cell_that_a_spreadsheet_would_compute_is_text(name: str) -> None:
    read = list(csv.reader(io.StringIO(write_csv(("a", name), [(name, -1.5)]), newline="")))
    assert read == [["a", f"'{name}"], [f"'{name}", "-1.5"]]


def test_numbers_and_other_names_are_as_they_were() -> None:
    text = write_csv(("name", "value"), [("a-b=c", -0.1), ("1+1", 1e-300), (None, True)], "\n")
    assert text == "name,value\na-b=c,-0.1\n1+1,1e-300\n,True\n"
