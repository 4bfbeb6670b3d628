"""The page of answers: slots are filled, and everything is linked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from answer_page import fill, format_fact, write_answers

from clockhands.comparison import Comparison
from clockhands.errors import ConfigError
from clockhands.runs.recipe import vary_recipe
from clockhands.studies import STUDIES
from clockhands.studies.literature import describe_gap
from clockhands.studies.question import Claim, Example, Numbers, Pair, Question
from clockhands.studies.study import Ordering, Study
from tests.comparison.planted import results

FACTS = {"moon": {"far": 384.4, "phases": 8, "tiny": 1.25e-16, "low": -0.5}}
ASKED = Question(
    "moon", "Why?", 1, "input", "It is so.", "First. [[exact/moon.far:0]].", "A picture.", "Nowhere.",
    Example("print(1)", "1"), ("a", "b"), (("x", "[[tides/score:base]]"),),
    (Claim("It is.", "only if", "it is.", 3), Claim("Never.", "false", "It is.")), ("tides",),
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


def test_a_page_has_every_part_in_its_order(tides: Comparison) -> None:
    page = write_answers([replace(ASKED, note="A moon is 8.")], {"tides": tides}, FACTS)
    order = [
        "- [Why?](#moon) It is so.", '<a id="moon"></a>', "## Why?", "**It is so.**", "First. 384.",
        "figures/mechanism-moon.svg", "```python\nprint(1)\n```", "```text\n1\n```",
        "**What was measured**\n\nA moon is 8.\n\n| a | b |", "| x | 60.", "**People also say**",
        '- <a id="claim-3"></a>“It is.” **Only if** it is.', "- “Never.” **False.** It is.",
        "**Limits, and what else was measured.** Nowhere.", "[Tides?](studies/tides.md)",
        "| 3 | [It is.](#claim-3) | only if it is |",
    ]  # fmt: skip
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "[[" not in page and "earlier task" not in page


def test_a_table_of_what_needs_no_training_says_that_it_was_computed(tides: Comparison) -> None:
    pages = [
        write_answers([replace(ASKED, rows=(("x", cell),))], {"tides": tides}, {**FACTS, "shift": {"rank sine": 8}})
        for cell in ("[[exact/shift.rank sine]]", "[[exact/shift.rank sine]], [[exact/moon.far:0]]")
    ]
    assert ["**What was computed**" in page for page in pages] == [True, False]
    assert ["**What was measured**" in page for page in pages] == [False, True]


def test_limits_of_several_points_are_a_list_with_an_empty_line_before_it(tides: Comparison) -> None:
    listed = write_answers([replace(ASKED, limits="- Not at sea.\n- Not on land.")], {"tides": tides}, FACTS)
    assert "**Limits, and what else was measured.**\n\n- Not at sea.\n- Not on land.\n" in listed


def test_further_rows_and_the_methods_are_folded_and_a_study_is_described_once(tides: Comparison) -> None:
    asked = replace(ASKED, more=(("y", "[[tides/kind:better]]"),), rests={"tides": {"better": "better"}})
    again = replace(asked, name="sun", place=2, claims=())
    page = write_answers([asked, again], {"tides": tides}, FACTS)
    folded = page[page.index("<summary>More trainings") : page.index("</details>")]
    assert "| y | better |" in folded and "- [tides](studies/tides.md): corpus" in folded
    assert "3 compared with the baseline together; 1 is shown" in folded
    first, second = (page[page.index(f'<a id="{name}">') :] for name in ("moon", "sun"))
    assert "described in [an earlier answer](#moon)" in second and "Again with" not in second
    assert "Again with" in first[: first.index('<a id="sun">')]


def test_a_condition_in_the_list_of_claims_ends_where_its_evidence_begins(tides: Comparison) -> None:
    because = "it begins as N(0, 1): then [[exact/moon.phases]] is its length."
    claim = Claim("It is | so.", "only if", because, number=7)
    page = write_answers([replace(ASKED, claims=(claim,))], {"tides": tides}, FACTS)
    assert page.rstrip().endswith("(#claim-7) | only if it begins as N(0, 1) |")


def test_long_evidence_is_a_list_inside_the_list_of_claims(tides: Comparison) -> None:
    because = "it begins as N(0, 1).\n- **At the input** it is so.\n- **At the output** it is not."
    claim = Claim("It is.", "only if", because, number=7)
    page = write_answers([replace(ASKED, claims=(claim,))], {"tides": tides}, FACTS)
    assert "“It is.” **Only if** it begins as N(0, 1).\n    - **At the input** it is so.\n    - **At the" in page
    assert page.rstrip().endswith("(#claim-7) | only if it begins as N(0, 1) |")


def test_a_table_whose_seeds_have_their_own_text_says_so(tides: Comparison) -> None:
    redrawn = replace(tides, plan=replace(tides.plan, redraw_text=True))
    pages = [write_answers([ASKED], {"tides": measured}, FACTS) for measured in (tides, redrawn)]
    assert ["6 seeds, each with a text of its own, 200 test items" in page for page in pages] == [False, True]


def test_a_table_whose_models_were_computed_in_bf16_says_so(tides: Comparison) -> None:
    recipe = vary_recipe(tides.plan.recipe, {"training.precision": "bf16"})
    rounded = replace(tides, plan=replace(tides.plan, recipe=recipe))
    pages = [write_answers([ASKED], {"tides": measured}, FACTS) for measured in (tides, rounded)]
    assert ["computed in bf16" in page for page in pages] == [False, True]


def test_a_study_without_a_question_is_linked(tides: Comparison) -> None:
    page = write_answers([replace(ASKED, studies=(), rows=())], {"tides": tides}, FACTS)
    assert "## Further studies\n\n- [Tides?](studies/tides.md)" in page


def test_facts_are_written_as_they_are_asked_for() -> None:
    assert [format_fact(rest, FACTS) for rest in ("moon.far:0", "moon.far", "moon.phases")] == ["384", "384", "8"]
    assert format_fact("moon.tiny", FACTS) == "1.25e-16"
    assert format_fact("moon.low:1", FACTS) == "−0.5"
    with pytest.raises(KeyError):
        fill("[[exact/moon.near]]", {}, FACTS)
    assert re.fullmatch(r"8 and 384\.40", fill("[[exact/moon.phases]] and [[exact/moon.far:2]]", {}, FACTS))


def test_a_study_that_has_not_ended_says_so(tides: Comparison) -> None:
    begun = replace(tides, trials=tides.trials[:1])
    page = write_answers([replace(ASKED, rows=())], {"tides": begun}, FACTS)
    assert "Not all of it has been run: 0 to 1 of 6 seeds of each variant so far" in page
    assert "has been run" not in write_answers([ASKED], {"tides": tides}, FACTS)


def test_a_comparison_is_shown_with_its_interval_and_guards_itself(tides: Comparison) -> None:
    """Both comparisons of the question widen the interval, though one alone is shown."""
    pairs = [Pair("tides", Ordering("It is more.", more="better", less=less), name=less) for less in ("base", "worse")]
    asked = replace(ASKED, limits="More by [[ordered/base]] points.", ordered=tuple(pairs))
    assert f"More by {describe_gap(pairs[0].ordering, tides, 2)} points." in write_answers(
        [asked], {"tides": tides}, FACTS
    )
    turned = Pair("tides", Ordering("It is more.", more="base", less="better"), name="base")
    with pytest.raises(ConfigError, match="It is more"):
        write_answers([replace(asked, ordered=(turned,))], {"tides": tides}, FACTS)
    with pytest.raises(KeyError):
        write_answers([replace(asked, ordered=(pairs[1],))], {"tides": tides}, FACTS)
