"""The cards of a page, chosen among planted findings, and what opens a page."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clockhands.findings import SHARE, Finding, Findings, Reference, Table
from clockhands.report import make_page
from clockhands.report.first_screen import choose_cards, draw_strip, find_opening, measure_distance
from tests.report.html_tree import Tree


def plant(name: str, value: float, half: float, reference: float, **fields: Any) -> Finding:
    """A finding whose value has an interval of ``half`` to both sides, beside a reference without one."""
    interval = (value - half, value + half)
    return Finding(
        name, f"Is {name} there?", f"{name} is {value}. More.", value, "tokens", interval,
        (Reference(f"no {name}", reference),), **fields,
    )  # fmt: skip


PLANTED = (
    plant("near", 1.0, 1.0, 0.5),  # the interval holds the reference: undecided
    plant("third", 10.0, 1.0, 7.0),  # 3 half-widths
    plant("exact", 5.0, 0.0, 0.0),  # an interval without width
    plant("first", 100.0, 0.1, 0.0),  # 1000
    plant("fourth", 3.0, 1.0, 1.0),  # 2
    plant("second", -8.0, 2.0, 0.0),  # 4
    plant("skipped", 900.0, 0.1, 0.0, light="skip"),
    Finding("bare", "Q?", "No reference.", 5.0, interval=(4.0, 6.0)),
)


def choose(*findings: Finding) -> list[str]:
    return [card.id for card in choose_cards((finding.name, finding) for finding in findings)]


def test_the_cards_are_the_findings_farthest_from_their_reference_in_units_of_the_interval() -> None:
    assert choose(*PLANTED) == ["first", "second", "third"]
    assert choose(*reversed(PLANTED)) == ["first", "second", "third"]


def test_what_is_undecided_is_no_card_however_few_there_are() -> None:
    assert choose(plant("near", 1.0, 1.0, 0.5)) == []
    assert choose(plant("touching", 1.0, 0.5, 0.5)) == [], "the reference is the end of the interval"
    assert choose(plant("apart", 1.0, 0.4, 0.5)) == ["apart"]


def test_the_interval_of_the_reference_counts_too() -> None:
    """12 against 8 with 1 to each side is 2; where the reference may be 11.5, the intervals meet."""
    assert measure_distance(12.0, (11.0, 13.0), Reference("r", 8.0, (7.0, 9.0))) == pytest.approx(2.0)
    assert measure_distance(12.0, (11.0, 13.0), Reference("r", 8.0, (4.0, 11.5))) == pytest.approx(4 / 4.5)
    assert measure_distance(12.0, None, Reference("r", 8.0, (7.0, 9.0))) == pytest.approx(4.0)
    assert measure_distance(12.0, None, Reference("r", 8.0)) is None


def test_an_interval_counts_as_far_as_it_reaches_towards_the_reference() -> None:
    assert measure_distance(99.0, (90.0, 100.0), Reference("r", 0.0)) == pytest.approx(11.0)
    assert measure_distance(0.0, (0.0, 5.0), Reference("r", -10.0)) == pytest.approx(2.0), "its whole width"


def test_of_equal_distances_the_earlier_comes_first() -> None:
    equal = [plant(name, 10.0, 1.0, 0.0) for name in ("d", "a", "c", "b")]
    assert choose(*equal) == ["d", "a", "c"]


def test_bad_findings_without_a_distance_fill_up_before_those_to_watch() -> None:
    findings = (
        Finding("watch", "Q?", "V.", light="warn"),
        Finding("good", "Q?", "V.", light="good"),
        Finding("bad", "Q?", "V.", light="bad"),
        plant("undecided", 1.0, 1.0, 0.5, light="bad"),
        plant("decided", 10.0, 1.0, 0.0),
    )
    assert choose(*findings) == ["decided", "bad", "watch"]


def test_a_small_difference_is_no_card_however_closely_it_was_measured() -> None:
    close, apart = plant("close", 6.71, 0.001, 6.75), plant("apart", 10.0, 1.0, 8.0)
    assert choose(close, apart) == ["apart"]


def test_a_finding_may_bring_comparisons_that_a_test_has_decided() -> None:
    """They stand for it, in their own order of distances, and also where their intervals meet."""
    common = {"unit": "points", "reference": "sinusoidal", "reference value": 0.0}
    compared = [
        {"question": "A?", "sentence": "a is better.", "value": 2.0, "interval": [1.0, 3.0], **common},
        {"question": "B?", "sentence": "b is worse.", "value": -9.0, "interval": [-10.0, -8.0], **common},
        {"question": "C?", "sentence": "c learned.", "value": 1.0, "interval": [0.0, 5.0], **common},
    ]
    finding = plant("verdict", 50.0, 0.1, 0.0, details={"opening": "B is worse.", "compared": compared})
    read = Findings.from_json(Findings("t", (finding,)).to_json())["verdict"]
    for each in (finding, read):
        cards = choose_cards([("verdict", each)])
        assert [(card.question, card.id) for card in cards] == [("B?", "verdict"), ("A?", "verdict"), ("C?", "verdict")]
        assert cards[0].reference == Reference("sinusoidal", 0.0)


def test_the_picture_has_everything_in_its_place() -> None:
    strip = draw_strip(0.5, SHARE, (0.4, 0.7), Reference("untrained", 0.1, (0.0, 0.2)))
    assert strip.span and strip.reference_span
    places = [*strip.reference_span, *strip.span]
    assert places == sorted(places) and min(places) == 14 and max(places) == 226
    assert strip.reference_span[0] < strip.reference < strip.reference_span[1] < strip.span[0] < strip.value
    assert (strip.value - 14) / 212 == pytest.approx(0.5 / 0.7, abs=0.001)
    assert strip.words == "50\u00a0% [40, 70]; untrained 10\u00a0% [0, 20]"


def test_a_card_has_a_sentence_a_number_its_interval_and_the_named_reference() -> None:
    text = make_page(Findings("t", PLANTED))
    cards = text[text.index('<ul class="cards"') :].split("</ul>")[0] + "</ul>"
    first = re.sub(r"<[^>]+>", " ", cards.split("</li>")[0]).replace("\u00a0", " ").replace("&nbsp;", " ")
    for shown in ("Is first there?", "100", "[99.9, 100]", "against no first: 0 tokens", "first is 100.0."):
        assert shown in " ".join(first.split()), shown
    assert "More." not in first
    assert [link["href"] for link in Tree(cards).every("a")] == ["#first", "#second", "#third"]
    assert [svg["role"] for svg in Tree(cards).every("svg")] == ["img"] * 3
    assert text.index('<ul class="cards"') < text.index('<nav class="contents"') < text.index("<main")


def test_a_page_of_undecided_findings_has_no_cards() -> None:
    assert '<ul class="cards"' not in make_page(Findings("t", (PLANTED[0],)))


def test_the_opening_stands_first_with_a_small_table_and_is_told_once() -> None:
    table = Table(
        ("English", "with", "without"), (("Tom bit a dog", "Tomo", "Tomo"), ("a dog bit Tom", "hundo", "Tomo"))
    )
    opening = Finding("o", "What?", "All of it.", table=table, details={"opening": "Both become Tomo."})
    facts = {"verdict": "Both become Tomo.", "model": "a model"}
    text = make_page(Findings("t", (*PLANTED, opening), facts=facts))
    tree = Tree(text)
    assert find_opening((*PLANTED, opening)) is opening
    assert text.index("Both become Tomo.") < text.index('<ul class="cards"')
    assert tree.words["td"][:3] == ["Tom bit a dog", "Tomo", "Tomo"]
    assert text.count("Both become Tomo.") == 1 and tree.words["dd"] == ["a model"]


def test_a_large_table_stays_in_its_section() -> None:
    table = Table(("a", "b"), ((1, 2),) * 5)
    opening = Finding("o", "What?", "V.", table=table, details={"opening": "Told."})
    header = make_page(Findings("t", (opening,))).split("</header>")[0]
    assert "<table" not in header and "Told." in header
