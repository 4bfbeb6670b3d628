"""The pages of the studies and answers are made from the TOML files and the kept results."""

from __future__ import annotations

from pathlib import Path

import generate
import pytest

from clockhands.comparison import Comparison
from clockhands.comparison.results import ComparisonFolder
from clockhands.comparison.trial import Trial
from clockhands.errors import UsageError
from tests.comparison.planted import COSTS, plan


def test_every_sentence_of_the_answers_is_what_the_results_say() -> None:
    """Writing the pages checks what each text rests on; each stands there as it is written, and no other does."""
    pages = generate.write_pages()
    answers = {path: text for path, text in pages.items() if path.is_relative_to(generate.ANSWERS)}
    assert {*answers} == {*generate.ANSWERS.rglob("*.md")}
    stale = [path.name for path, text in answers.items() if path.read_text("utf8") != text]
    assert stale == [], "run python docs/tools/answers/generate.py"


def test_a_comparison_that_was_kept_goes_on_in_a_new_folder(tmp_path: Path) -> None:
    kept = Comparison(plan(), COSTS, (Trial("learned", 1, "failed", error="no memory"),))
    generate.give(Comparison.from_json(kept.to_json()), tmp_path / "new")
    opened = ComparisonFolder(tmp_path / "new").open(plan(), {})
    assert opened.trials == kept.trials and len(opened.missing) == 3
    with pytest.raises(UsageError, match="holds a comparison already; choose another folder"):
        generate.give(kept, tmp_path / "new")
