"""Verdicts on planted results: better, worse, no difference; what was lost is said; every form of the table."""

from __future__ import annotations

from dataclasses import replace

from clockhands.comparison.verdict_findings import conclude, describe_method, summarise_verdicts
from clockhands.comparison.verdicts import judge
from clockhands.findings import Findings
from clockhands.report import make_page
from tests.comparison.planted import results, shares


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
    assert findings["compare.lengths"].value == 5.5  # the mean of 2 + seed over six seeds


def test_the_figure_draws_each_score_with_its_interval() -> None:
    mark = conclude(results())["compare.verdict"].figure.panels[0].marks[0]
    drawn = {
        name: (score, low, high) for name, score, low, high in zip(mark.y, mark.x, mark.low, mark.high, strict=True)
    }
    assert drawn == {verdict.variant: (verdict.score, *(verdict.interval or ())) for verdict in judge(results())}
    assert all(low < high for _, low, high in drawn.values())


def test_the_page_opens_with_who_is_better_worse_and_undecided() -> None:
    findings = conclude(results())
    told = findings["compare.verdict"].details["opening"]
    assert told.startswith("Better than “base”: “better”. Worse than “base”: “worse”. ")
    assert told.endswith(("Equivalent: “same”.", "Undecided: “same”."))
    assert told in make_page(findings).split("</header>")[0]


def test_where_nobody_learned_the_page_says_so_and_draws_no_scores() -> None:
    findings = conclude(shares({"base": [0.0] * 5, "other": [0.0] * 5}))
    finding = findings["compare.verdict"]
    assert finding.details["opening"].startswith("Nothing was learned by any variant")
    page = make_page(findings)
    assert "Nothing was learned by any variant" in page.split("</header>")[0]
    section = page[page.index('id="compare-verdict"') :].split("</section>")[0]
    assert '<div class="plot' not in section


def test_a_variant_that_alone_learned_is_better_by_its_seeds() -> None:
    finding = conclude(shares({"base": [0.0] * 6, "other": [0.9] * 6}))["compare.verdict"]
    assert "Better than “base”: “other”." in finding.details["opening"]
    assert "6 of 6 seeds learned, and 0 of the baseline's 6" in finding.verdict


def test_the_baseline_alone_is_no_verdict() -> None:
    baseline, *_ = judge(results())
    assert summarise_verdicts([baseline]) == "There is nothing but the baseline, “base”."


def test_the_method_says_whether_the_seeds_share_their_text() -> None:
    """The text of seeds that do not share it was told to be the same for all."""
    comparison = results()
    redrawn = replace(comparison, plan=replace(comparison.plan, redraw_text=True))
    methods = [conclude(made).items[0].method for made in (comparison, redrawn)]
    assert "while the training text is the same." in methods[0] and "another draw" not in methods[0]
    assert "a seed decides the training text (another draw" in methods[1] and "the same." not in methods[1]
    assert describe_method(redrawn.plan) == methods[1]


def test_a_failure_that_no_seed_showed_is_said_to_be_possible() -> None:
    """Of five seeds that learned up to 1 - 0.05^(1/5) = 45 % may fail, of six 39 %; not told where some failed."""
    assert "of 6 none did, which a failure in up to 39 % of all seeds" in conclude(results())["compare.verdict"].verdict
    five = shares({"base": [0.9] * 5, "other": [0.8] * 5})
    assert "of 5 none did, which a failure in up to 45 %" in conclude(five)["compare.verdict"].verdict
    failing = shares({"base": [0.9, 0.9, 0.9, 0.9, 0.0], "other": [0.8, 0.8, 0.8, 0.8, 0.0]})
    assert "none did" not in conclude(failing)["compare.verdict"].verdict
