"""The answers in the package are the verdicts of the studies' pages."""

from __future__ import annotations

from pathlib import Path

from clockhands.studies import STUDIES
from clockhands.studies.measured import read_answers

PAGES = Path(__file__).parent.parent.parent / "docs" / "studies"


def test_every_measured_study_has_the_verdict_of_its_page() -> None:
    answers = read_answers()
    assert [answer.name for answer in answers] == [name for name in STUDIES if (PAGES / f"{name}.md").is_file()]
    for answer in answers:
        page = (PAGES / f"{answer.name}.md").read_text("utf8")
        assert page.startswith(f"# {answer.question}\n")
        assert page.partition("## Verdict\n\n")[2].partition("\n\n## ")[0] == answer.answer
        assert answer.command in page
