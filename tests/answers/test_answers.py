"""docs/answers.md: its code runs, its numbers are computed or measured, its claims are all there, its links lead."""

from __future__ import annotations

import io
import json
import math
import re
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from exact import FACTS
from kept import list_kept, read_kept

from clockhands.studies import STUDIES
from clockhands.studies.question import Question, read_questions
from clockhands.studies.soundness import describe_earlier_plan

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "answers.md").read_text("utf8")
QUESTIONS = read_questions()
MOST_LINES, MOST_SECONDS = 10, 20
"""What a reader can try has at most so many lines and takes at most so many seconds of the processor."""
ALL_CLAIMS = range(1, 52)
"""36 of the five pages that people read, and fifteen that belong to later questions."""
each = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)


@each
def test_what_a_reader_tries_prints_what_the_page_says(
    question: Question, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(question.attempt.code.strip().splitlines()) <= MOST_LINES
    printed = io.StringIO()
    started = time.process_time()  # of the processor, because other programs on the machine make other seconds longer
    with redirect_stdout(printed):
        exec(compile(question.attempt.code, question.name, "exec"), {"__name__": "attempt"})
    assert time.process_time() - started < MOST_SECONDS
    assert printed.getvalue().strip() == question.attempt.prints.strip()


@each
def test_an_answer_has_a_small_table(question: Question) -> None:
    assert len(question.rows) >= 2


def texts(question: Question) -> str:
    """What a person reads of a question, without code, formulas and slots."""
    claims = [text for claim in question.claims for text in (claim.because,)]
    text = "\n".join(
        [question.answer, question.why, question.caption, question.note, question.limits, question.details, *claims]
    )
    return re.sub(r"\[\[.+?\]\]|`[^`]*`", "", text, flags=re.DOTALL)


@each
def test_no_measured_number_is_typed(question: Question) -> None:
    """What others published is typed, in a sentence that names them and the year."""
    cited = re.compile(r"[A-Z]\w+ and others,? \(?\d{4}\b")
    own = " ".join(part for part in re.split(r"(?<=\.)\s", texts(question)) if not cited.search(part))
    typed = re.findall(r"\d+(?:\.\d+)? ?%|(?<![\d.])\d+\.\d+(?! and (?:below|above))", own)
    assert [number for number in typed if number not in ("0.9", "0.1", "95 %")] == []


@each
def test_the_reasons_are_three_sentences_and_have_a_formula(question: Question) -> None:
    bare = re.sub(r"\[\[.+?\]\]|`[^`]*`", "x", question.why, flags=re.DOTALL)
    assert len(re.findall(r"[.](?:\s|$)", bare)) == 3, bare
    assert "`" in question.why


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_what_is_computed_again(name: str) -> None:
    kept = json.loads((DOCS / "studies" / "exact.json").read_text("utf8"))
    assert set(kept) == set(FACTS)
    values = dict(FACTS[name]())
    assert set(values) == set(kept[name])
    for key, value in values.items():
        same = (
            value == kept[name][key]
            if isinstance(value, str)
            else math.isclose(value, kept[name][key], rel_tol=1e-6, abs_tol=1e-9)
        )
        assert same, f"{key}: {value} is kept as {kept[name][key]}; run python docs/tools/answers/generate.py --exact"


def test_every_claim_has_its_verdict_once() -> None:
    numbers = [claim.number for question in QUESTIONS.values() for claim in question.claims if claim.number is not None]
    assert sorted(numbers) == list(ALL_CLAIMS)


def test_every_count_of_seeds_that_learned_has_its_interval() -> None:
    counts = {*re.findall(r"(\d+ of \d+)(?: seeds)?(?: that)? learned", PAGE)}
    assert {"0 of 5", "9 of 10"} <= counts
    assert [count for count in sorted(counts) if not re.search(rf"\| {count} \| (?:at \w+ )?\d", PAGE)] == []


def test_no_verdict_is_drawn_from_scores_of_a_task_that_was_too_easy() -> None:
    kept = [name for name in list_kept() if name in STUDIES]
    earlier = {name for name in kept if describe_earlier_plan(STUDIES[name], read_kept(name))}
    for question in QUESTIONS.values():
        for claim in question.claims:
            drawn = set(re.findall(r"\[\[([\w.-]+)/(?:score|verdict):", claim.because))
            assert claim.verdict == "undecided" or not drawn & earlier, f"{question.name}: {claim.says}"
        assert not set(re.findall(r"\[\[([\w.-]+)/(?:score|verdict):", question.answer + question.why)) & earlier


def test_pictures_and_anchors_are_there() -> None:
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAGE):
        assert (DOCS / picture).is_file(), picture
    anchors = re.findall(r'<a id="([\w-]+)"></a>', PAGE)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= set(anchors)
    for address in re.findall(r"\]\(((?!#|https?:)[^)#]+)", PAGE):
        assert (DOCS / address).exists(), address
