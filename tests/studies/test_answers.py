"""The pages of the studies are what their generator writes from the committed results."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from clockhands.studies import ORDER
from tests.comparison.planted import results

DOCS = Path(__file__).parent.parent.parent / "docs"
GENERATE = runpy.run_path(str(DOCS / "studies" / "generate.py"))


def test_no_page_has_drifted() -> None:
    for path, text in GENERATE["pages"]().items():
        assert path.read_text("utf8") == text, f"{path.name}: run python docs/studies/generate.py"


def test_every_study_has_its_question() -> None:
    assert set(GENERATE["QUESTIONS"]) == set(ORDER)
    for entry in GENERATE["QUESTIONS"].values():
        optional = {"reading", "ordering", "figure", "unscored"}
        assert entry.keys() - optional == {"question", "claims", "design", "answer", "change"}


def test_an_answer_has_three_sentences() -> None:
    for name, one in GENERATE["measured"]().items():
        assert len(re.findall(r"[.](?: |$)", GENERATE["answer"](name, one))) == 3, name


def test_slots_are_filled_with_what_was_measured() -> None:
    said = GENERATE["filled"]("[[score:base]] and [[verdict:better]], [[after:base:loud]].", results())
    assert said.endswith(", 2.00.") and "better by" in said and "[" in said
