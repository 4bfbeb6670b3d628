"""The pages of answers: slots are filled, and everything is linked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from answer_page import fill, format_fact, make_plain, write_answers
from gaps import describe_gap
from kept import Facts, Measured
from question import Claim, Example, Numbers, Pair, Question

from clockhands.comparison import Comparison
from clockhands.errors import ConfigError
from clockhands.runs.recipe import vary_recipe
from clockhands.studies import STUDIES
from clockhands.studies.study import Ordering, Study
from tests.comparison.planted import results

FACTS = {"moon": {"far": 384.4, "phases": 8, "tiny": 1.25e-16, "low": -0.5}}
ASKED = Question(
    "moon", "Why?", 1, "input", "Because it is so.", "So.", "First. [[exact/moon.far:0]].", "A picture.", "Nowhere.",
    Example("print(1)", "1"), ("a", "b"), (("x", "[[tides/score:base]]"),),
    (Claim("It is.", "depends", "It is.", 3, "At times.", "the moon"), Claim("Never.", "false", "It is.", 4)),
    ("tides",),
    numbers=(Numbers("It is far away.", ("moon.far", "300")),),
)  # fmt: skip


@pytest.fixture
def tides(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """A study of the planted results: base 60 %, better 75 %, same 60 %, worse 45 %."""
    comparison = results()
    study = replace(STUDIES["scale"], name="tides", question="Tides?")
    monkeypatch.setattr(Study, "make_plan", lambda self, **_: comparison.plan)
    monkeypatch.setitem(STUDIES, "tides", study)
    return comparison


BODY = """\
- Far: [[exact/moon.far:0]].

<!-- live: moon | It turns -->

[[tides/score:base|0]] %.

Try: clockhands tour
"""


def write_all(questions: list[Question], measured: Measured, facts: Facts = FACTS) -> dict[str, str]:
    """Return the pages of questions that share one body."""
    return write_answers(questions, measured, facts, {question.name: BODY for question in questions})


def write_evidence(question: Question, measured: Measured, facts: Facts = FACTS) -> str:
    """Return the page of the evidence of one question."""
    return write_all([question], measured, facts)[f"evidence/{question.name}.md"]


def test_a_page_has_every_part_in_its_order(tides: Comparison) -> None:
    pages = write_all([replace(ASKED, note="A moon is 8.")], {"tides": tides})
    short = [
        "# Why?", "**Because it is so.**", "figures/mechanism-moon.svg", "- Far: 384.", "<!-- live: moon", "60 %.",
        "“It is.” **Depends: on the moon.** At times.", "“Never.” **False.**", "```sh\nclockhands tour\n```",
        "<details", "```python\nprint(1)\n```", "```text\n1\n```", "| x | 60.", "(evidence/moon.md)",
    ]  # fmt: skip
    long = [
        "# The evidence: Why?", "(../moon.md)", "First. 384.", "**What was measured**\n\nA moon is 8.\n\n| a | b |",
        "| x | 60.", "**People also say**", '- <a id="claim-3"></a>“It is.” **Depends: on the moon.** It is.',
        "“Never.” **False.** It is.", "**Limits, and what else was measured.** Nowhere.",
        "[Tides?](../../studies/tides.md)",
    ]  # fmt: skip
    for name, order in (("moon.md", short), ("evidence/moon.md", long)):
        places = [pages[name].index(part) for part in order]
        assert places == sorted(places), name
    assert "- [Why?](moon.md) So." in pages["index.md"]
    assert "| 3 | [It is.](../moon.md#claim-3) | Depends: on the moon |" in pages["evidence/claims.md"]
    assert not any("[[" in page or "earlier task" in page for page in pages.values())


def test_what_is_undecided_stands_on_the_list_with_its_cost(tides: Comparison) -> None:
    claim = Claim("It is.", "undecided", "Nobody knows.", 3, "Nobody knows.", cost="an hour")
    index = write_all([replace(ASKED, claims=(claim,))], {"tides": tides})["index.md"]
    assert "what deciding it would take\n\n- “It is.” An hour.\n" in index


def test_links_lead_from_where_the_evidence_stands(tides: Comparison) -> None:
    asked = replace(ASKED, limits="See [one](#moon), [two](#claim-4), [three](studies/x.md) and [four](schemes/y.md).")
    page = write_evidence(asked, {"tides": tides})
    assert "[one](moon.md), [two](moon.md#claim-4), [three](../../studies/x.md) and [four](../../schemes/y.md)" in page


@pytest.mark.parametrize(
    ("text", "wanted", "said"),
    [
        ("98.4 [97.2, 99.6]", "0", "98"), ("0.57 [0.52, 0.62]", "%", "57"), ("−7.27 [−8.70, −5.84]", "1", "−7.3"),
        ("−7.27 [−8.70, −5.84]", "a1", "7.3"), ("worse by 0.041 nats [0.019, 0.064]", "2", "0.04"),
        ("0.7 to 34.7 over its seeds, of which 2 of 5 learned", "0", "1–35"), ("12,288,000", "0", "12,288,000"),
    ],
)  # fmt: skip
def test_a_plain_number_has_no_interval(text: str, wanted: str, said: str) -> None:
    assert make_plain(text, wanted) == said
    with pytest.raises(ValueError, match="'equivalent' has no number"):
        make_plain("equivalent", wanted)


def test_a_table_of_what_needs_no_training_says_that_it_was_computed(tides: Comparison) -> None:
    pages = [
        write_evidence(replace(ASKED, rows=(("x", cell),)), {"tides": tides}, {**FACTS, "shift": {"rank sine": 8}})
        for cell in ("[[exact/shift.rank sine]]", "[[exact/shift.rank sine]], [[exact/moon.far:0]]")
    ]
    assert ["**What was computed**" in page for page in pages] == [True, False]
    assert ["**What was measured**" in page for page in pages] == [False, True]


def test_limits_of_several_points_are_a_list_with_an_empty_line_before_it(tides: Comparison) -> None:
    listed = write_evidence(replace(ASKED, limits="- Not at sea.\n- Not on land."), {"tides": tides})
    assert "**Limits, and what else was measured.**\n\n- Not at sea.\n- Not on land.\n" in listed


def test_further_rows_and_the_methods_are_folded_and_a_study_is_described_once(tides: Comparison) -> None:
    asked = replace(ASKED, more=(("y", "[[tides/kind:better]]"),), rests={"tides": {"better": "better"}})
    again = replace(asked, name="sun", place=2, claims=())
    pages = write_all([asked, again], {"tides": tides})
    page = pages["evidence/moon.md"]
    folded = page[page.index("<summary>More trainings") : page.index("</details>")]
    assert "| y | better |" in folded and "- [tides](../../studies/tides.md): corpus" in folded
    assert "3 compared with the baseline together; 1 is shown" in folded
    second = pages["evidence/sun.md"]
    assert "described with [another answer](moon.md)" in second and "Again with" not in second
    assert "Again with" in page


def test_long_evidence_is_a_list_inside_the_list_of_claims(tides: Comparison) -> None:
    because = "It begins as N(0, 1).\n- **At the input** it is so.\n- **At the output** it is not."
    claim = Claim("It is.", "depends", because, number=7, on="the place")
    page = write_evidence(replace(ASKED, claims=(claim,)), {"tides": tides})
    assert "**Depends: on the place.** It begins as N(0, 1).\n    - **At the input** it is so.\n    - **At the" in page


def test_a_table_says_how_its_models_were_trained(tides: Comparison) -> None:
    redrawn = replace(tides, plan=replace(tides.plan, redraw_text=True))
    recipe = vary_recipe(tides.plan.recipe, {"training.precision": "bf16"})
    rounded = replace(tides, plan=replace(tides.plan, recipe=recipe))
    pages = [write_evidence(ASKED, {"tides": measured}) for measured in (tides, redrawn, rounded)]
    assert ["6 seeds, each with a text of its own, 200 test items" in page for page in pages] == [False, True, False]
    assert ["computed in bf16" in page for page in pages] == [False, False, True]


def test_a_study_without_a_question_is_linked(tides: Comparison) -> None:
    page = write_all([replace(ASKED, studies=(), rows=())], {"tides": tides})["evidence/claims.md"]
    assert "## Further studies\n\n- [Tides?](../../studies/tides.md)" in page


def test_facts_are_written_as_they_are_asked_for() -> None:
    assert [format_fact(rest, FACTS) for rest in ("moon.far:0", "moon.far", "moon.phases")] == ["384", "384", "8"]
    assert format_fact("moon.tiny", FACTS) == "1 × 10⁻¹⁶"
    assert format_fact("moon.low:1", FACTS) == "−0.5"
    with pytest.raises(KeyError):
        fill("[[exact/moon.near]]", {}, FACTS)
    assert re.fullmatch(r"8 and 384\.40", fill("[[exact/moon.phases]] and [[exact/moon.far:2]]", {}, FACTS))


def test_a_study_that_has_not_ended_says_so(tides: Comparison) -> None:
    begun = replace(tides, trials=tides.trials[:1])
    page = write_evidence(replace(ASKED, rows=()), {"tides": begun})
    assert "Not all of it has been run: 0 to 1 of 6 seeds of each variant so far" in page
    assert "has been run" not in write_evidence(ASKED, {"tides": tides})


def test_a_comparison_is_shown_with_its_interval_and_guards_itself(tides: Comparison) -> None:
    """Both comparisons of the question widen the interval, though one alone is shown."""
    pairs = [Pair("tides", Ordering("It is more.", more="better", less=less), name=less) for less in ("base", "worse")]
    asked = replace(ASKED, limits="More by [[ordered/base]] points.", ordered=tuple(pairs))
    assert f"More by {describe_gap(pairs[0].ordering, tides, 2)} points." in write_evidence(asked, {"tides": tides})
    turned = Pair("tides", Ordering("It is more.", more="base", less="better"), name="base")
    with pytest.raises(ConfigError, match="It is more"):
        write_evidence(replace(asked, ordered=(turned,)), {"tides": tides})
    with pytest.raises(KeyError):
        write_evidence(replace(asked, ordered=(pairs[1],)), {"tides": tides})
