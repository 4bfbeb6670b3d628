"""``clockhands study`` on the command line: the list, and a study that has run, whose answer is printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clockhands.cli import main
from clockhands.comparison import Comparison
from clockhands.comparison.results import ComparisonFolder
from clockhands.findings import Findings
from clockhands.studies import STUDIES
from tests.answers import kept
from tests.cli.conftest import Capture

DOCS = Path(__file__).parent.parent.parent / "docs"


def read_verdict(name: str) -> str:
    """The answer as it stands on the page of a study."""
    return (DOCS / "studies" / f"{name}.md").read_text("utf8").partition("## Verdict\n\n")[2].partition("\n")[0]


def test_a_folder_without_a_study_is_refused(tmp_path: Path, capsys: Capture) -> None:
    assert main(["study", "--out", str(tmp_path / "x")]) == 2
    assert "--out is of a study, and none is named" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_studies_are_listed_with_their_cost(capsys: Capture) -> None:
    assert main(["study"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("scale ") and lines[0].endswith("(40 trials, about 4 min on one core)")
    assert sum("trials, about" in line for line in lines) == len(STUDIES)


def test_question_facts_table_and_answer_are_printed(tmp_path: Path, capsys: Capture) -> None:
    """Of the committed trials, put into a folder as if they had run there: nothing is trained, the answer is known."""
    measured = kept.read_kept("order-at-all")
    folder = ComparisonFolder(tmp_path / "out")
    folder.open(STUDIES["order-at-all"].make_plan(), measured.costs)
    for trial in measured.trials:
        folder.add(trial)
    assert main(["study", "order-at-all", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Does a Transformer need positions at all?")
    assert "budget: 300 steps each, equal width" in shown
    assert "P(better)" in shown and "causal encoder, neither" in shown
    known = read_verdict("order-at-all")
    assert known in shown
    findings = Findings.load(tmp_path / "out" / "findings.json")
    assert findings.items[0].verdict == known and findings.command == "clockhands study order-at-all"
    assert Comparison.from_json((tmp_path / "out" / "study.json").read_text("utf8")).trials == measured.trials


def test_a_study_of_which_nothing_finished_has_failed(tmp_path: Path, capsys: Capture) -> None:
    measured = kept.read_kept("order-at-all")
    folder = ComparisonFolder(tmp_path / "out")
    folder.open(STUDIES["order-at-all"].make_plan(), measured.costs)
    for trial in measured.trials:
        folder.add(replace(trial, status="failed", error="planted"))
    assert main(["study", "order-at-all", "--out", str(tmp_path / "out"), "--quiet"]) == 1
    known = read_verdict("order-at-all")
    assert known not in " ".join(capsys.readouterr().out.split())
