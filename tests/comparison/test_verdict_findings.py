"""Verdicts on planted results: better, worse, no difference; what was lost is said; every form of the table."""

from __future__ import annotations

import csv
import io

import pytest

from clockhands.comparison import loss_findings
from clockhands.comparison.formats import as_csv, as_latex, as_markdown
from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import judge
from clockhands.findings import Findings
from clockhands.report import page
from tests.comparison.planted import results


def test_the_planted_truth_is_found() -> None:
    judged = {verdict.variant: verdict for verdict in judge(results())}
    assert judged["base"].sentence == "the baseline"
    assert judged["better"].sentence.startswith("better by 1") and judged["better"].probability == 1
    assert judged["worse"].sentence.startswith("worse by 1") and judged["worse"].probability == 0
    assert judged["same"].sentence.startswith("no significant difference (")
    assert judged["better"].difference is not None and judged["better"].difference.comparisons == 3
    assert judged["better"].difference.adjusted < 0.01 < judged["same"].difference.adjusted


def test_two_seeds_are_too_few() -> None:
    assert {verdict.sentence for verdict in judge(results(seeds=2))[1:]} == {"too few seeds to tell (2 of at least 5)"}
    assert judge(results(seeds=1))[1].sentence == "too few seeds to tell (1 of at least 5)"
    assert conclude(results(seeds=2))["compare.verdict"].light == "warn"


def test_a_lost_seed_is_counted_and_said() -> None:
    judged = {verdict.variant: verdict for verdict in judge(results(lost=("better",)))}
    assert (judged["better"].finished, judged["better"].diverged) == (5, 1)
    assert judged["better"].sentence.endswith("; 1 of 6 diverged")
    assert judged["better"].difference is not None and judged["better"].difference.seeds == 5
    findings = conclude(results(lost=("better",)))
    assert findings.facts["trials"] == "23 finished, 1 diverged"
    assert findings["compare.verdict"].light == "warn"


def test_the_report_has_every_part_and_can_be_drawn() -> None:
    findings = conclude(results(), "clockhands compare plan.toml")
    names = [finding.name for finding in findings]
    assert names == ["compare.verdict", "compare.curves", "compare.lengths", "compare.costs", "inside.loud"]
    assert Findings.from_json(findings.to_json()) == findings
    assert all(finding.command == "clockhands compare plan.toml" for finding in findings)
    assert "better by" in page(findings)
    assert findings["compare.curves"].figure.panels[0].marks[1].x == (2, 6), (
        "points without a validation loss are left out"
    )
    assert "on an abacus, 2 cores;" in findings["compare.costs"].method
    assert findings["compare.lengths"].value == 5.5  # the mean of 2 + seed over six seeds


def test_a_crowd_is_not_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_findings, "MOST_LINES", 2)
    findings = conclude(results())
    for name in ("compare.curves", "compare.lengths"):
        panel = findings[name].figure.panels[0]
        drawn = {mark.label for mark in panel.marks}
        assert len(drawn) == 2 and "base" in drawn
        assert len({row[0] for row in findings[name].table.rows}) == 4
        assert panel.title == "base and the 1 lowest of the others"


def test_tables_for_papers_and_spreadsheets() -> None:
    made = results()
    assert as_markdown(made).splitlines()[2].startswith("| base | ")
    assert made.signature in as_markdown(made)
    shown = {row.split(" | ")[0][2:]: row.split(" | ")[4] for row in as_markdown(made).splitlines()[2:6]}
    assert shown["base"] == "" and shown["better"] == shown["worse"] == "< 0.001" and float(shown["same"]) > 0.05
    assert r"\begin{tabular}" in as_latex(made) and "%" in as_latex(made).splitlines()[0]
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert len(rows) == 24 and rows[0]["variant"] == "base" and rows[0]["status"] == "finished"
