"""The pages of the studies and answers are made from the TOML files and the kept results."""

from __future__ import annotations

import generate
import pytest

from clockhands.studies import STUDIES
from clockhands.studies.measured import PACKAGED, read_answers


def test_every_sentence_of_the_answers_is_what_the_results_say() -> None:
    """Writing the pages checks what each text rests on; what the package tells of the studies is what they measured."""
    pages = generate.write_pages()
    assert pages[PACKAGED] == PACKAGED.read_text("utf8"), "run python docs/tools/answers/generate.py"
    assert {answer.name for answer in read_answers()} == {*generate.read_measured()}
    assert f"## {STUDIES['scale'].question}" in pages[generate.ANSWERS] or generate.ANSWERS in pages


def test_the_generator_writes_nothing_that_was_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--chek"], "unrecognized arguments: --chek"),
        (["--take", "scale", "folder", "--exact"], "not allowed with argument"),
        (["--take", "scale"], "expected 2 arguments"),
        (["scale"], "unrecognized arguments: scale"),
    ):
        with pytest.raises(SystemExit, match="2"):
            generate.parse(words)
        assert said in capsys.readouterr().err
