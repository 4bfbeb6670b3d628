"""The page of answers: slots are filled, sentences fall with the verdicts they rest on, and everything is linked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from clockhands.comparison import Comparison
from clockhands.errors import ConfigError
from clockhands.studies import STUDIES
from clockhands.studies.answer_page import check_rests, fill, format_fact, write_answers
from clockhands.studies.question import Claim, Example, Question
from clockhands.studies.study import Ordering, Study
from tests.comparison.planted import results

FACTS = {"moon": {"far": 384.4, "phases": 8, "tiny": 1.25e-16}}
ASKED = Question(
    "moon", "Why?", 1, "input", "It is so.", "First. [[exact/moon.far:0]].", "A picture.", "Nowhere.",
    Example("print(1)", "1"), ("a", "b"), (("x", "[[tides/score:base]]"),),
    (Claim("It is.", "only if", "it is.", 3), Claim("Never.", "false", "It is.")), ("tides",),
)  # fmt: skip


@pytest.fixture
def tides(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """A study of the planted results: base 60 %, better 75 %, same 60 %, worse 45 %."""
    comparison = results()
    study = replace(STUDIES["scale"], name="tides", question="Tides?")
    monkeypatch.setattr(Study, "make_plan", lambda self, **_: comparison.plan)
    monkeypatch.setitem(STUDIES, "tides", study)
    return comparison


def test_a_page_has_every_part_in_its_order(tides: Comparison) -> None:
    page = write_answers([ASKED], {"tides": tides}, FACTS)
    order = [
        "- [Why?](#moon) It is so.", '<a id="moon"></a>', "## Why?", "**It is so.**", "First. 384.",
        "figures/mechanism-moon.svg", "```python\nprint(1)\n```", "```text\n1\n```", "| x | 60.", "**People also say**",
        '- <a id="claim-3"></a>“It is.” **Only if** it is.', "- “Never.” **False.** It is.",
        "**Where this does not hold.** Nowhere.", "[Tides?](studies/tides.md)", "| 3 | [It is.](#claim-3) | only if |",
    ]  # fmt: skip
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "[[" not in page and "earlier task" not in page


def test_a_table_whose_seeds_have_their_own_text_says_so(tides: Comparison) -> None:
    redrawn = replace(tides, plan=replace(tides.plan, redraw_text=True))
    pages = [write_answers([ASKED], {"tides": measured}, FACTS) for measured in (tides, redrawn)]
    assert ["6 seeds, each with a text of its own, 200 test items" in page for page in pages] == [False, True]


def test_a_study_without_a_question_is_linked(tides: Comparison) -> None:
    page = write_answers([replace(ASKED, studies=(), rows=())], {"tides": tides}, FACTS)
    assert "## Further studies\n\n- [Tides?](studies/tides.md)" in page


def test_a_sentence_falls_with_the_verdict_that_it_rests_on(tides: Comparison) -> None:
    measured = {"tides": tides}
    check_rests([replace(ASKED, rests={"tides": {"better": "better"}})], measured)
    fallen = replace(
        ASKED,
        rests={"tides": {"better": "worse"}},
        claims=(Claim("It is.", "true", "", rests={"tides": {"worse": "equivalent"}}),),
    )
    with pytest.raises(ConfigError, match="2 faults") as raised:
        check_rests([fallen], measured)
    assert "the answer of moon rests on 'better' being worse, and the study tides found better" in str(raised.value)
    assert "'It is.' rests on 'worse' being equivalent" in str(raised.value)


def test_no_sentence_rests_on_an_earlier_task(tides: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    now = STUDIES["order-at-all"].plan
    monkeypatch.undo()
    monkeypatch.setitem(STUDIES, "tides", replace(STUDIES["order-at-all"], name="tides", plan=now))
    measured = {"tides": tides}
    with pytest.raises(ConfigError, match=r"rests on the study tides\. The results .* are of an earlier task"):
        check_rests([replace(ASKED, rests={"tides": {"better": "better"}})], measured)
    assert "no conclusion here rests on its scores" in write_answers([ASKED], measured, FACTS)


def test_facts_are_written_as_they_are_asked_for() -> None:
    assert [format_fact(rest, FACTS) for rest in ("moon.far:0", "moon.far", "moon.phases")] == ["384", "384", "8"]
    assert format_fact("moon.tiny", FACTS) == "1.25e-16"
    with pytest.raises(KeyError):
        fill("[[exact/moon.near]]", {}, FACTS)
    assert re.fullmatch(r"8 and 384\.40", fill("[[exact/moon.phases]] and [[exact/moon.far:2]]", {}, FACTS))


def test_an_order_that_a_text_tells_is_checked(tides: Comparison) -> None:
    """“better” and “worse” differ by 30 points, and neither is the baseline."""
    measured = {"tides": tides}
    told = Ordering("The better one is right more often.", "", more="better", less="worse")
    check_rests([replace(ASKED, ordered=(("tides", told),))], measured)
    turned = Ordering("The worse one is right more often.", "", more="worse", less="better")
    equal = Ordering("The same one is right more often.", "", more="same", less="base")
    with pytest.raises(ConfigError) as raised:
        check_rests([replace(ASKED, ordered=(("tides", turned), ("tides", equal)))], measured)
    assert "says 'The worse one is right more often.', and the study tides found it contradicted" in str(raised.value)
    assert "says 'The same one is right more often.', and the study tides found it undecided" in str(raised.value)


def test_a_study_that_has_not_ended_says_so(tides: Comparison) -> None:
    begun = replace(tides, trials=tides.trials[:1])
    page = write_answers([replace(ASKED, rows=())], {"tides": begun}, FACTS)
    assert "Not all of it has been run: 0 to 1 of 6 seeds of each variant so far" in page
    assert "has been run" not in write_answers([ASKED], {"tides": tides}, FACTS)
