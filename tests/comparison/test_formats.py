"""The verdicts as a table for a README and for a paper, and the trials for a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.comparison.formats import UNKNOWN_TO_TEX, write_latex, write_markdown, write_trials
from clockhands.comparison.verdicts import judge
from tests.comparison.planted import results, shares


def test_tables_for_papers_and_spreadsheets() -> None:
    made = results()
    assert write_markdown(made).splitlines()[2].startswith("| base | ")
    assert made.signature in write_markdown(made) and "Cameron, Gelbach \\& Miller 2011" in write_latex(made)
    shown = {row.split(" | ")[0][2:]: row.split(" | ")[4] for row in write_markdown(made).splitlines()[2:6]}
    assert shown["base"] == "" and shown["better"] == shown["worse"] == "< 0.001" and float(shown["same"]) > 0.05
    rows = list(csv.DictReader(io.StringIO(write_trials(made))))
    assert len(rows) == 24 and rows[0]["variant"] == "base" and rows[0]["status"] == "finished"


BEGIN, END = re.compile(r"\\begin\{(\w+)\}"), re.compile(r"\\end\{(\w+)\}")


def rows(text: str) -> list[list[str]]:
    """The cells of the body of the table."""
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    return [[cell.strip() for cell in line.removesuffix(r"\\").split(" & ")] for line in body.strip().splitlines()]


def read_number(cell: str) -> float:
    return float(cell.partition("[")[0].replace("$-$", "-"))


def test_every_environment_is_closed_and_every_brace() -> None:
    text = write_latex(results())
    assert BEGIN.findall(text) == ["table", "adjustbox", "tabular"]
    assert END.findall(text) == ["tabular", "adjustbox", "table"]
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert r"\caption{" in text and r"\label{tab:a-comparison}" in text
    assert text.isascii() or not {*text} & {*UNKNOWN_TO_TEX}, "a sign that TeX does not know"


def test_the_cells_hold_the_verdicts() -> None:
    made = results()
    found = rows(write_latex(made))
    assert len(found) == 4 and {len(row) for row in found} == {6}
    for row, verdict in zip(found, judge(made), strict=True):
        assert row[0] == verdict.variant and verdict.score is not None
        assert read_number(row[1]) == pytest.approx(verdict.score, abs=0.05)
        assert (row[4], row[5]) == ("6/6", verdict.kind)
        if gap := verdict.difference:
            low, high = row[2].replace("$-$", "-").partition("[")[2].strip("]").split(", ")
            assert [read_number(row[2]), float(low), float(high)] == pytest.approx(
                [gap.value, gap.low, gap.high], abs=0.0501
            )


def test_what_did_not_end_leaves_its_cells_empty_and_what_ranks_decide_is_told() -> None:
    """Three of five seeds learn: no interval of three scores decides, the exact rank test of all five does."""
    assert rows(write_latex(shares({"base": [0.9] * 5, "lost": [None] * 5})))[1] == [
        "lost", "no seed finished", "", "", "0/5", "worse",
    ]  # fmt: skip
    torn = rows(write_latex(shares({"base": [0.9] * 5, "fails": [0.85, 0.7, 0.75, 0.01, 0.02]})))[1]
    assert torn[4:] == ["3/5", "worse"]


def test_names_and_signs_are_written_as_themselves() -> None:
    made = shares({"base": [0.9] * 5, r"50 % & √d − 1_a\x~^<{}$#": [0.9] * 5})
    wanted = r"50 \% \& $\surd$d $-$ 1\_a\textbackslash{}x\textasciitilde{}\^{}\ensuremath{<}\{\}\$\#"
    assert rows(write_latex(made))[1][0] == wanted
    titled = replace(results(), plan=replace(results().plan, title="50 % & √d_a^2?"))
    wanted = r"\caption{50 \% \& $\surd$d\_a\textasciicircum{}2? Exact match \%, 6 seeds, 6 steps each"
    assert wanted in write_latex(titled)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no TeX here")
def test_a_real_tex_sets_it_within_the_page(tmp_path: Path) -> None:
    """Two tables in the narrowest of the usual classes: no error, and nothing sticks out."""
    made = [results(), shares({"base": [0.9] * 5, "√d × a name & of_many letters": [0.85, 0.7, 0.75, 0.01, 0.02]})]
    packages = r"\usepackage{booktabs,adjustbox}"
    body = "\n".join(write_latex(one) for one in made)
    (tmp_path / "main.tex").write_text(
        f"\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{body}\n\\end{{document}}\n",
        "utf8",
    )
    command = ["pdflatex", "-interaction=nonstopmode", "main.tex"]
    done = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False) for _ in range(2)][-1]
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search(r"^!|Overfull|undefined", done.stdout, re.MULTILINE)
