"""The table for a paper, read as LaTeX reads it: environments, columns, cells, numbers."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.comparison.latex import BIBLIOGRAPHY, write_latex
from clockhands.comparison.results import Comparison
from clockhands.comparison.variants import Variant
from clockhands.comparison.verdicts import judge
from tests.comparison.planted import results, shares

BEGIN, END = re.compile(r"\\begin\{(\w+)\}"), re.compile(r"\\end\{(\w+)\}")
NUMBER = re.compile(r"^(?:\\bfseries )?(<?[+-]?\d+\.\d+)$")


def rows(text: str) -> list[list[str]]:
    """The cells of the body of the table."""
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    return [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in body.strip().splitlines()]


def test_every_environment_is_closed_and_every_brace() -> None:
    text = write_latex(results())
    assert BEGIN.findall(text) == ["table", "tabular", "filecontents"]
    assert END.findall(text) == ["tabular", "table", "filecontents"]
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert r"\caption{" in text and r"\label{tab:a-comparison}" in text


def test_every_row_has_a_cell_for_each_column_and_numbers_that_siunitx_reads() -> None:
    text = write_latex(results())
    columns = re.search(r"\\begin\{tabular\}\{(.*)\}$", text, re.MULTILINE)
    assert columns is not None
    kinds = re.findall(r"S\[[^\]]*\]|[lcr]", columns[1])
    assert len(kinds) == 9 and len(rows(text)) == 4
    for row in rows(text):
        assert len(row) == 9
        for kind, cell in zip(kinds, row, strict=True):
            assert kind in "lc" or cell == "{--}" or NUMBER.match(cell), cell


def test_the_cells_hold_the_verdicts_and_bold_is_what_is_significant() -> None:
    made = results()
    for row, verdict in zip(rows(write_latex(made)), judge(made), strict=True):
        assert row[0] == verdict.variant and verdict.score is not None
        assert float(row[1]) == pytest.approx(verdict.score, abs=0.05)
        gap = verdict.difference
        assert ("bfseries" in row[4]) == (verdict.kind in ("better", "worse"))
        if gap is None:
            assert row[4:8] == ["{--}"] * 4
        else:
            assert [float(cell.removeprefix(r"\bfseries ")) for cell in row[4:7]] == pytest.approx(
                [gap.value, gap.low, gap.high], abs=0.0501
            )
    assert {row[0]: "bfseries" in row[4] for row in rows(write_latex(made))} == {
        "base": False, "better": True, "same": False, "worse": True,
    }  # fmt: skip


def test_what_did_not_end_leaves_its_cells_empty() -> None:
    lost = rows(write_latex(shares({"base": [0.9] * 5, "lost": [None] * 5})))[1]
    assert lost == [r"lost$^\dagger$", *["{--}"] * 7, "0/5"]


def named(comparison: Comparison, name: str) -> Comparison:
    """The same with another name for the variant "same"."""
    variants = tuple(
        Variant(name, variant.overrides) if variant.name == "same" else variant for variant in comparison.plan.variants
    )
    trials = tuple(replace(trial, variant=name) if trial.variant == "same" else trial for trial in comparison.trials)
    costs = {name if key == "same" else key: cost for key, cost in comparison.costs.items()}
    return replace(comparison, plan=replace(comparison.plan, variants=variants), trials=trials, costs=costs)


def test_names_and_signs_are_written_as_themselves() -> None:
    text = write_latex(named(results(), "50 % & √d − 1_a"))
    assert r"50 \% \& $\surd$d $-$ 1\_a &" in text
    assert len(rows(text.replace(r"\&", "and"))[2]) == 9


def test_the_paragraph_says_what_was_done_and_cites_what_there_is() -> None:
    text = write_latex(results())
    cited = set(re.findall(r"\\cite[pt]\{(\w+)\}", text))
    entries = set(re.findall(r"@\w+\{(\w+),", text))
    assert cited == entries - {"smyth2004"} and len(entries) == BIBLIOGRAPHY.count("@"), "three variances lend nothing"
    many = write_latex(shares({name: [0.9] * 5 for name in "abcdefg"}))
    assert r"moderated across variants \citep{smyth2004}" in many and "below 1 point " in many
    assert "the same 6 random seeds" in text and "the same 200 test items" in text and "3 comparisons together" in text
    assert "which decide\nbatches and initial weights, and" in text
    redrawn = write_latex(replace(results(), plan=replace(results().plan, redraw_text=True)))
    assert "which decide\ntraining text, batches and initial weights, and" in redrawn
    alone = write_latex(shares({"base": [0.9] * 5, "other": [0.8] * 5}))
    assert "intervals and $p$ values are those of a $t$ test." in alone and "together, by the largest" not in alone
    few = write_latex(shares({name: [0.9] * 3 for name in "abcd"}))
    assert "divided by the 3 comparisons (Bonferroni)" in few and "together, by the largest" not in few
    grouped = results()
    trials = tuple(replace(trial, groups=tuple(n // 2 for n in range(200))) for trial in grouped.trials)
    assert "200 test items in 100 groups" in write_latex(replace(grouped, trials=trials))


def test_what_rests_on_an_exact_test_has_a_dagger_and_no_interval() -> None:
    """Three of five seeds learn: no interval of three scores decides, the exact rank test of all five does."""
    text = write_latex(shares({"base": [0.9] * 5, "fails": [0.85, 0.7, 0.75, 0.01, 0.02], "same": [0.9] * 5}))
    by_name = {row[0]: row for row in rows(text)}
    assert by_name[r"fails$^\dagger$"][2:8] == ["{--}"] * 6 and "same" in by_name
    assert "by an exact test of all seeds" in text and "exact test of all" not in write_latex(results())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no TeX here")
def test_a_real_tex_sets_it_within_the_page(tmp_path: Path) -> None:
    """Two tables in the narrowest of the usual classes: no error, and nothing sticks out."""
    made = [results(), shares({"base": [0.9] * 5, "√d × a name & of_many letters": [0.85, 0.7, 0.75, 0.01, 0.02]})]
    packages = r"\usepackage{array,booktabs,siunitx,etoolbox,natbib} \robustify\bfseries"
    body = "\n".join(write_latex(one) for one in made)
    (tmp_path / "main.tex").write_text(
        f"\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{body}\n"
        "\\bibliographystyle{plainnat}\\bibliography{clockhands}\n\\end{document}\n",
        "utf8",
    )
    commands = [["pdflatex", "-interaction=nonstopmode", "main.tex"]] * 3
    commands.insert(1, ["bibtex", "main"])
    said = [subprocess.run(one, cwd=tmp_path, capture_output=True, text=True, check=False) for one in commands]
    assert [done.returncode for done in said] == [0] * 4, said[-1].stdout[-2000:]
    assert not re.search(r"^!|Overfull|undefined", said[-1].stdout, re.MULTILINE)
