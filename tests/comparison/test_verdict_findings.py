"""Verdicts on planted results: better, worse, no difference; what was lost is said; every form of the table."""

from __future__ import annotations

from clockhands.comparison.verdict_findings import conclude
from clockhands.comparison.verdicts import judge
from clockhands.findings import Findings
from clockhands.report import make_page
from tests.comparison.planted import results


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
    assert "better by" in make_page(findings)
    assert findings["compare.curves"].figure.panels[0].marks[1].x == (2, 6), (
        "points without a validation loss are left out"
    )
    assert "on an abacus, 2 cores;" in findings["compare.costs"].method
    assert findings["compare.lengths"].value == 5.5  # the mean of 2 + seed over six seeds


def test_the_figure_draws_each_score_with_its_interval() -> None:
    mark = conclude(results())["compare.verdict"].figure.panels[0].marks[0]
    drawn = {
        name: (score, low, high) for name, score, low, high in zip(mark.y, mark.x, mark.low, mark.high, strict=True)
    }
    assert drawn == {verdict.variant: (verdict.score, *(verdict.interval or ())) for verdict in judge(results())}
    assert all(low < high for _, low, high in drawn.values())
