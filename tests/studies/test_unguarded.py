"""A variant that a text shows, and words that compare, are found where no guard says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clockhands.comparison import Comparison
from clockhands.studies.question import Claim, Numbers, Pair, read_questions
from clockhands.studies.study import Ordering
from clockhands.studies.unguarded import EQUAL, UNDECIDED, UNEQUAL, find_unguarded
from tests.comparison.planted import results
from tests.studies.test_answer_page import ASKED
from tests.studies.test_answers import RESULTS

FACTS = {
    "moon": {"far": 384.4, "phases": 8, "loss": 1.2, "pull": 3.0, "pull, low": 2.0, "pull, verdict": "more"},
    "directions": {"cosine": 0.3},
}
MEASURED = {"tides": results()}
QUIET = replace(ASKED, why="Nothing.", claims=(), numbers=())


def find(text: str, **guards: object) -> list[str]:
    return find_unguarded(replace(QUIET, limits=text, **guards), MEASURED, FACTS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It has [[tides/score:better]] %.", "'better' of the study tides (score)"),
        ("It is [[tides/verdict:same]].", "'same' of the study tides (score)"),
        ("It is [[tides/kind:worse]].", "'worse' of the study tides (score)"),
        ("There it is [[tides/longer:base:longer-7]].", "'base' of the study tides (longer-7)"),
        ("It changed by [[tides/growth:worse:longer-7]].", "'worse' of the study tides (longer-7)"),
        ("Before it is [[tides/before:base:overlap]].", "'base' of the study tides (before: overlap)"),
        ("Then it is [[tides/during:base:40:overlap]].", "'base' of the study tides (step 40: overlap)"),
        ("It took [[tides/reached:same]].", "'same' of the study tides (pace)"),
        ("It is [[exact/moon.far:0]] away.", "'moon.far'"),
        ("It is at least [[exact/moon.pull, low:1]].", "'moon.pull'"),
    ],
)
def test_what_a_text_shows_needs_a_guard(text: str, shown: str) -> None:
    assert find(text) == [f"the limits of moon shows {shown}, and nothing in rests, ordered or numbers guards it"]


def test_a_guard_is_about_the_same_matter() -> None:
    """A verdict on the score does not guard a loss on longer text, which is how three sentences stood unguarded."""
    text = "There it is [[tides/longer:better:longer-7]] nats, and for words [[tides/score:better]] %."
    assert len(find(text, rests={"tides": {"better": "better"}})) == 1
    pair = Pair("tides", Ordering("It holds.", alike=("better", "base"), on="longer-7, growth"), "undecided")
    assert find(text, rests={"tides": {"better": "better"}}, ordered=(pair,)) == []
    assert find(text, rests={"tides": {"better": ["better", "grows"]}}) == []


@pytest.mark.parametrize(
    "text",
    [
        "The baseline has [[tides/score:base]] %, of [[tides/items]] items.",
        "It has [[exact/moon.phases]] phases and a loss of [[exact/moon.loss:2]].",
        "By the formula it is [[exact/directions.cosine:2]].",
        "`better` or “worse”, as they say.",
        "It is three times as much as before.",
    ],
)
def test_what_compares_nothing_needs_none(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    ("text", "kind", "fault"),
    [
        ("It is undecided.", "undecided", "say “undecided” 1 times, and 0 of its guards do"),
        ("It does as well.", "equivalent", "say “does as well”, and no guard says so"),
        ("It is far worse.", "worse", "say “worse”, and no guard says so"),
    ],
)
def test_words_that_compare_need_a_guard_that_says_so(text: str, kind: str, fault: str) -> None:
    (found,) = find(text)
    assert fault in found
    assert find(text, rests={"tides": {"same": kind}}) == []
    claims = (Claim("So it is.", "false", text),)
    assert len(find_unguarded(replace(QUIET, claims=claims), MEASURED, FACTS)) == 1


def test_undecided_is_counted() -> None:
    text = "The one is undecided, and the other is undecided."
    assert "2 times, and 1 of its guards do" in find(text, rests={"tides": {"same": "undecided"}})[0]


def test_numbers_guard_what_they_name() -> None:
    text = "It is [[exact/moon.far:0]] away, and [[tides/after:worse:overlap]] overlaps."
    numbers = (Numbers("Far.", ("moon.far", "300")), Numbers("Over.", ("tides/after:worse:overlap", "0")))
    assert len(find(text)) == 2
    assert find(text, numbers=numbers) == []


@pytest.mark.parametrize("name", ["rope-base", "rope-quarter", "temperature"])
def test_an_answer_without_its_guards_is_found(name: str) -> None:
    question = read_questions()[name]
    paths = [path for study in question.studies for path in RESULTS.glob(f"{study}*.json")]
    measured = {path.stem: Comparison.from_json(path.read_text("utf8")) for path in paths}
    computed = json.loads((RESULTS.parent / "exact.json").read_text("utf8"))
    assert find_unguarded(question, measured, computed) == []
    claims = tuple(replace(claim, rests={}) for claim in question.claims)
    bare = replace(question, claims=claims, rests={}, ordered=(), numbers=())
    assert any("undecided" in fault for fault in find_unguarded(bare, measured, computed))


def test_the_words_are_those_of_verdicts() -> None:
    assert EQUAL.search("does as well") and not EQUAL.search("seven times as much as")
    assert UNEQUAL.search("it is behind") and UNDECIDED.search("Undecided.")
