"""Sentences of the answers fall where the results say something else, or of an earlier task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from kept import Measured, read_kept
from question import Claim, Numbers, Pair, Question, read_questions
from rests import check_rests, count_comparisons, count_growths, find_range

from clockhands.comparison import Comparison
from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.study import Ordering, Study
from tests.answers.test_answer_page import ASKED
from tests.comparison.planted import results

FACTS = {"moon": {"far": 384.4, "phases": 8, "near": 356.5, "seen": "59.0 [57.5, 60.5]", "lit": "50.0"}}
QUESTIONS = read_questions()


@pytest.fixture
def tides(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """A study of the planted results: base 60 %, better 75 %, same 60 %, worse 45 %."""
    comparison = results()
    monkeypatch.setattr(Study, "make_plan", lambda self, **_: comparison.plan)
    monkeypatch.setitem(STUDIES, "tides", replace(STUDIES["scale"], name="tides"))
    return comparison


def test_a_sentence_falls_with_the_verdict_that_it_rests_on(tides: Comparison) -> None:
    measured = {"tides": tides}
    check_rests([replace(ASKED, rests={"tides": {"better": "better"}})], measured, FACTS)
    fallen = replace(
        ASKED,
        rests={"tides": {"better": ["better", "worse"]}},
        claims=(Claim("It is.", "true", "", rests={"tides": {"worse": "equivalent"}}),),
    )
    with pytest.raises(ConfigError, match="2 faults") as raised:
        check_rests([fallen], measured, FACTS)
    assert "the answer of moon rests on 'better' being worse, and the study tides found better" in str(raised.value)
    assert "'It is.' rests on 'worse' being equivalent" in str(raised.value)


def test_no_sentence_rests_on_an_earlier_task(tides: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(STUDIES, "tides", replace(STUDIES["order-at-all"], name="tides"))
    with pytest.raises(ConfigError, match=r"rests on the study tides\. The results .* are of an earlier task"):
        check_rests([replace(ASKED, rests={"tides": {"better": "better"}})], {"tides": tides}, FACTS)


def test_an_order_that_a_text_tells_is_checked(tides: Comparison) -> None:
    """“better” and “worse” differ by 30 points, and neither is the baseline."""
    measured = {"tides": tides}
    pair = Pair("tides", Ordering("The better one is right more often.", more="better", less="worse"))
    open_ = Pair("tides", Ordering("Nobody knows.", alike=("same", "base")), "undecided")
    check_rests([replace(ASKED, ordered=(pair, open_))], measured, FACTS)
    turned = Pair("tides", Ordering("The worse one is right more often.", more="worse", less="better"))
    equal = Pair("tides", Ordering("The same one is right more often.", more="same", less="base"))
    decided = Pair("tides", Ordering("Nobody knows of the two.", alike=("better", "base")), "undecided")
    with pytest.raises(ConfigError, match="3 faults") as raised:
        check_rests([replace(ASKED, ordered=(turned, equal, decided))], measured, FACTS)
    assert "says 'The worse one is right more often.', and the study tides found it contradicted" in str(raised.value)
    assert "says 'The same one is right more often.', and the study tides found it undecided" in str(raised.value)
    assert "says 'Nobody knows of the two.', and the study tides found it contradicted" in str(raised.value)


def test_a_question_counts_the_comparisons_of_its_study_too() -> None:
    """A family of its own, smaller than that of the study's page, would decide what is undecided there."""
    two = replace(QUESTIONS["how-far"], ordered=QUESTIONS["how-far"].ordered[:2])
    planned, wider = (read_kept(name) for name in ("how-far", "how-far.twice"))
    assert count_comparisons(two, "how-far", planned) == len(STUDIES["how-far"].orderings) == 17
    assert count_comparisons(two, "how-far.twice", wider) == 17, "every ordering was tried at twice the width"
    assert count_comparisons(replace(two, ordered=two.ordered * 20), "how-far", planned) == 40


def test_a_question_counts_the_growths_that_it_shows_or_judges() -> None:
    rows = (("ALiBi", "[[how-far/growth:alibi:x]]"), ("KERPLE", "[[how-far/growth:kerple:x]] [[how-far/score:t5]]"))
    rests = {"how-far": {"kerple": "holds", "none": ["worse", "grows"], "t5": "better"}}
    asked = replace(ASKED, rows=rows, rests=rests)
    assert count_growths(asked) == 3
    claim = Claim("It grows.", "true", "[[scale/growth:alibi:x]]", rests={"how-far": {"rope": "grows", "t5": "better"}})
    assert count_growths(replace(asked, claims=(claim,))) == 5, "of another study too, and of claims"
    assert count_growths(ASKED) == 1


def test_numbers_that_a_text_compares_are_in_their_order(tides: Comparison) -> None:
    measured = {"tides": tides}
    falling = Numbers("It goes away.", ("moon.far", "moon.near", "100", "moon.seen", "moon.lit"))
    check_rests([replace(ASKED, numbers=(falling, Numbers("Tides.", ("tides/score:base", "40"))))], measured, FACTS)
    with pytest.raises(ConfigError, match=r"says 'It comes\.', and moon.near is not above moon.far: 356.5 against"):
        check_rests([replace(ASKED, numbers=(Numbers("It comes.", ("moon.near", "moon.far")),))], measured, FACTS)
    with pytest.raises(ConfigError, match=r"moon.seen is not above 58: 57.5 against 58"):
        check_rests([replace(ASKED, numbers=(Numbers("Its interval.", ("moon.seen", "58")),))], measured, FACTS)


def test_a_number_has_its_interval(tides: Comparison) -> None:
    measured = {"tides": tides}
    low, high = find_range("tides/score:base", measured, FACTS)
    assert low < 60 < high
    assert find_range("moon.seen", measured, FACTS) == (57.5, 60.5)
    assert find_range("moon.phases", measured, FACTS) == (8.0, 8.0)
    with pytest.raises(ConfigError, match=r"sun\.far is .sun\.far., which is no number"):
        find_range("sun.far", measured, FACTS)


@cache
def read_measured() -> Measured:
    """Return the committed results of those studies whose comparisons a question tells."""
    names = {pair.study for question in QUESTIONS.values() for pair in question.ordered}
    return {name: read_kept(name) for name in names}


def move_items(items: Any) -> Any:
    """Return the results of test items that are all right if few of them are, else all wrong; or losses 50 higher."""
    if isinstance(items, str):
        return ("1" if items.count("1") < len(items) / 2 else "0") * len(items)
    return tuple(loss + 50.0 for loss in items)


def plant_otherwise(comparison: Comparison, pair: Pair) -> Comparison:
    """Exchange two variants of which one is told to have more; move those apart that are equal or undecided."""
    first, second = pair.ordering.variants
    if not pair.ordering.alike:
        names = {first: second, second: first}
        trials = [replace(trial, variant=names.get(trial.variant, trial.variant)) for trial in comparison.trials]
        return replace(comparison, trials=tuple(trials))
    split = pair.ordering.on.removesuffix(", growth")
    moved = []
    for trial in comparison.trials:
        longer = dict(trial.longer)
        if trial.variant == first and split == "score":
            trial = replace(trial, items=move_items(trial.items))
        elif trial.variant == first:
            longer[split] = replace(longer[split], loss=longer[split].loss + 50.0)
        moved.append(replace(trial, longer=longer))
    return replace(comparison, trials=tuple(moved))


PAIRS = [(question, pair) for question in QUESTIONS.values() for pair in question.ordered]


@pytest.mark.parametrize(("question", "pair"), PAIRS, ids=[f"{q.name}: {pair.ordering.claim}" for q, pair in PAIRS])
def test_every_comparison_of_the_answers_falls_with_its_result(question: Question, pair: Pair) -> None:
    """Each is told of the committed results and refused for planted ones, with the question's other guards left out."""
    bare = replace(
        question, answer="", why="", note="", limits="", details="", claims=(), studies=(), rests={}, numbers=()
    )
    check_rests([bare], read_measured())
    planted = {**read_measured(), pair.study: plant_otherwise(read_measured()[pair.study], pair)}
    with pytest.raises(ConfigError) as raised:
        check_rests([bare], planted)
    assert repr(pair.ordering.claim) in str(raised.value)
