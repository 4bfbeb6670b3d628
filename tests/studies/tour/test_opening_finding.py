"""What opens the tour, on translations that are written here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clockhands.data import Pair
from clockhands.data.corpora.roles.grammar import Phrase, Sentence
from clockhands.findings import Findings
from clockhands.generation import Translation
from clockhands.report import make_page
from clockhands.studies.tour import opening_finding
from clockhands.studies.tour.opening_finding import TWINS, describe_twins, find_opening
from clockhands.studies.tour.training import ROLES, ROLES_BLIND, Translator

RIGHT = ["Tomo mordis hundon", "hundo mordis Tomon"]


def make_translators(monkeypatch: pytest.MonkeyPatch, seeing: list[str], blind: list[str]) -> dict[str, Translator]:
    """Two translators that write these texts, the first telling both test pairs apart and the second neither."""
    pairs = [Pair("a b c", "x"), Pair("c b a", "y"), Pair("d e f", "x"), Pair("f e d", "y")]
    written = {ROLES: ("xyxy", seeing), ROLES_BLIND: ("xxyy", blind)}
    monkeypatch.setattr(
        opening_finding, "translate", lambda run, texts: [SimpleNamespace(text=text) for text in written[run][1]]
    )
    translators = {}
    for name, (texts, _) in written.items():
        done = tuple(Translation(pair.source, text, 0.0) for pair, text in zip(pairs, texts, strict=True))
        run: Any = name
        evaluation: Any = SimpleNamespace(translations=done)
        translators[name] = Translator(name, run, evaluation, pairs)
    return translators


def test_the_twins_are_what_the_corpus_says() -> None:
    tom, dog = Phrase("Tom"), Phrase("dog", "a")
    pairs = [Sentence(tom, "bit", dog).to_pair(), Sentence(dog, "bit", tom).to_pair()]
    assert {pair.source: pair.target for pair in pairs} == TWINS


def test_a_reader_without_positions_gets_one_of_the_two_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_opening(make_translators(monkeypatch, RIGHT, [RIGHT[1]] * 2))
    assert (found.value, found.light) == (100.0, "good")
    assert found.references[0].value == 0.0 and found.references[0].name == "without positions"
    assert found.interval is not None and found.interval[0] == pytest.approx(100 * 0.025**0.5)
    assert [row[:3] for row in found.table.rows] == [
        ("Tom bit a dog", "Tomo mordis hundon", "hundo mordis Tomon"),
        ("a dog bit Tom", "hundo mordis Tomon", "hundo mordis Tomon"),
    ]
    header = make_page(Findings("t", (found,))).split("</header>")[0]
    assert "Without positions both become “hundo mordis Tomon”: one of them is wrong." in header


@pytest.mark.parametrize(
    ("seeing", "blind", "said", "light"),
    [
        (
            RIGHT,
            RIGHT,
            "Without positions they become “Tomo mordis hundon” and “hundo mordis Tomon”: both are right",
            "good",
        ),
        (["x", RIGHT[1]], ["y", "y"], "“a dog bit Tom” “hundo mordis Tomon”: one of them is wrong", "warn"),
        (["x", "x"], ["y", "y"], "Without positions both become “y”: both are wrong.", "warn"),
        (RIGHT[::-1], ["y", "y"], "both are wrong. Without", "warn"),
    ],
)
def test_what_is_said_is_what_was_written(
    seeing: list[str], blind: list[str], said: str, light: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said in describe_twins(seeing, blind)
    assert find_opening(make_translators(monkeypatch, seeing, blind)).light == light
