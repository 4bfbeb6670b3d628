"""docs/answers: code runs, numbers are computed or measured, claims are all there, links lead, pages are short."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import re
import shlex
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from answer_page import describe_verdict
from exact import FACTS
from generate import BODIES
from kept import list_kept, read_kept
from measurement_notes import describe_earlier_plan
from question import EXACT, SLOT, Question, read_questions

from clockhands.checking.checks.check import CHECKS
from clockhands.cli.flags import declare, read_options
from clockhands.studies import STUDIES

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = DOCS / "answers"
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
    evidence = "\n".join(path.read_text("utf8") for path in (PAGES / "evidence").glob("*.md"))
    counts = {*re.findall(r"(\d+ of \d+)(?: seeds)?(?: that)? learned", evidence)}
    assert {"0 of 5", "9 of 10"} <= counts
    assert [count for count in sorted(counts) if not re.search(rf"\| {count} \| (?:at \w+ )?\d", evidence)] == []


def test_no_verdict_is_drawn_from_scores_of_a_task_that_was_too_easy() -> None:
    kept = [name for name in list_kept() if name in STUDIES]
    earlier = {name for name in kept if describe_earlier_plan(STUDIES[name], read_kept(name))}
    for question in QUESTIONS.values():
        for claim in question.claims:
            drawn = set(re.findall(r"\[\[([\w.-]+)/(?:score|verdict):", claim.because))
            assert claim.verdict == "undecided" or not drawn & earlier, f"{question.name}: {claim.says}"
        assert not set(re.findall(r"\[\[([\w.-]+)/(?:score|verdict):", question.answer + question.why)) & earlier


TEN = (
    "order-at-all", "why-not-the-index", "why-sine-and-cosine", "why-10000", "sum-or-concatenate", "scale",
    "does-adding-destroy-the-word", "telling-apart", "four-parts", "learned-or-fixed", "do-positions-survive",
)  # fmt: skip
"""The questions of the input and of the layers, each of which has a live scene."""
FOLD = re.compile(r"<details.*?</details>", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MOST_VISIBLE = 350
INTERVAL = re.compile(r"\d \[[−+]?[\d.,]+, [−+]?[\d.,]+\]")


def read_open(name: str) -> str:
    """What a reader sees of a page before opening a fold."""
    return FOLD.sub("", (PAGES / f"{name}.md").read_text("utf8"))


@each
def test_a_page_is_short_and_in_its_order(question: Question) -> None:
    page = read_open(question.name)
    title, answer, picture, *_ = [line for line in page.splitlines() if line]
    assert (title, answer) == (f"# {question.asked}", f"**{question.answer}**")
    assert picture.startswith("![") and "because" in answer.lower() and len(answer.split()) <= 15
    order = [page.find(part) for part in ("![", "\n- ", "<!-- live:", "\n| ", "## What people say", "## Try it")]
    there = [place for place in order if place >= 0]
    assert there == sorted(there) and (question.name not in TEN or order[2] > 0)
    words = re.sub(r"<[^>]+>|!\[[^\]]*\]|\([^)\s]*\.(?:md|svg)\)|[|*`#-]", " ", FENCE.sub("", page)).split()
    assert len(words) <= MOST_VISIBLE, f"{len(words)} words"
    assert not INTERVAL.search(page)
    numbers = page[: page.index("\n**", page.index("\n- "))]
    assert numbers.count("\n- ") <= 3
    assert all(len(table.splitlines()) <= 7 for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE))
    own = re.sub(r"“[^”]*”", "", page)  # people say what they say
    assert not re.search(r"\*(?:numbers|roles|stdlib|recall)\*|hardly|behind\b|[Oo]nly if", own)


def test_the_scenes_of_the_pages_are_those_of_the_explorer() -> None:
    scenes = (DOCS.parent / "explorer" / "src" / "ui" / "scenes.ts").read_text("utf8")
    for path in [*PAGES.glob("*.md"), DOCS / "index.md"]:
        for scene in re.findall(r"<!-- live: ([\w-]+)", path.read_text("utf8")):
            assert f'study: "{scene}"' in scenes, f"{path.name}: {scene}"


@each
def test_the_command_of_a_page_is_one(question: Question) -> None:
    """It is parsed as the command line parses it; what it does is tested where its verb is."""
    (command,) = re.findall(r"```sh\n(clockhands .*)\n```", read_open(question.name))
    _, verb, *words = shlex.split(command)
    parser = argparse.ArgumentParser()
    module = importlib.import_module(f"clockhands.cli.{verb}")
    declare(parser, module.Options)
    parsed = read_options(parser, module.Options, words)
    if verb == "study":
        assert STUDIES[parsed.name].make_plan(size=parsed.scale)
    if verb == "check":
        assert parsed.only in {*CHECKS, *(name.partition(".")[0] for name in CHECKS)}


def test_every_claim_stands_on_a_page_and_the_undecided_ones_on_one_list() -> None:
    index = (PAGES / "index.md").read_text("utf8")
    for question in QUESTIONS.values():
        page = read_open(question.name)
        for claim in question.claims:
            assert f"“{claim.says}” **{describe_verdict(claim)}.**" in page
            assert (f"“{claim.says}” {claim.cost[:1].upper()}{claim.cost[1:]}." in index) == (
                claim.verdict == "undecided"
            )
        assert f"[{question.asked}]({question.name}.md) {question.short}" in index


SAME = (
    ("scale", r"begins ([\d.]+) times as long as a position", r"word/position ([\d.]+) without", "width 512"),
    ("scale", r"with √d ([\d.]+) times", r"([\d.]+) with it", "width 512"),
)
"""A number of a page, and the same one in what its code prints."""


@pytest.mark.parametrize(("name", "told", "printed", "line"), SAME)
def test_the_same_quantity_is_the_same_number(name: str, told: str, printed: str, line: str) -> None:
    (shown,) = [row for row in QUESTIONS[name].attempt.prints.splitlines() if row.startswith(line)]
    assert re.findall(told, read_open(name)) == re.findall(printed, shown)


def test_a_quantity_has_the_same_digits_on_all_pages() -> None:
    """A loss that is 3.4 in a sentence and 3.41 in the table below it is two numbers to a reader."""
    texts = [path.read_text("utf8") for path in BODIES.glob("*.md")]
    texts += [claim.short for question in QUESTIONS.values() for claim in question.claims]
    shown: dict[tuple[str, str], set[str]] = {}
    for slot in (slot for text in texts for slot in SLOT.finditer(text)):
        quantity, _, digits = slot[2].partition(":" if slot[1] == EXACT else "|")
        shown.setdefault((slot[1], quantity), set()).add(digits.removeprefix("a"))
    assert len(shown) > 150 and {quantity: digits for quantity, digits in shown.items() if len(digits) > 1} == {}


def test_readme_and_pages_tell_the_same_ceilings() -> None:
    """What a reader blind to order can reach is computed once, for each task."""
    readme = (DOCS.parent / "README.md").read_text("utf8")
    tutorial = (DOCS / "tutorials" / "tour.md").read_text("utf8")
    found, again = (re.findall(r"blind to order can\s+exceed about ([\d.]+) %", text) for text in (readme, tutorial))
    told, shown = ({*re.findall(r"[\d.]+ %", text.partition("The page:")[0])} for text in (readme, tutorial))
    assert found == again and len(told) > 6 and told <= shown, "one tour, on two pages"
    page = re.findall(r"blind to order can reach (\d+) %", read_open("order-at-all"))
    assert [f"{float(number):.0f}" for number in found] == page


def test_pictures_links_and_anchors_are_there() -> None:
    for path in PAGES.rglob("*.md"):
        page = path.read_text("utf8")
        anchors = re.findall(r'<a id="([\w-]+)"></a>', page)
        assert len(anchors) == len(set(anchors))
        for address in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", FENCE.sub("", page)):
            name, _, anchor = address.partition("#")
            there = path.parent / name if name else path
            assert there.exists(), f"{path.name}: {address}"
            assert not anchor or f'<a id="{anchor}"></a>' in there.read_text("utf8"), f"{path.name}: {address}"
