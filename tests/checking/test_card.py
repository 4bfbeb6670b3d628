"""The badge and the card tell what passed and what did not, of the model and of its library apart."""

from __future__ import annotations

from clockhands.checking.card import describe_badge, make_card
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome

VERSIONS = {"transformers": "5.23.0", "torch": "2.13.0"}
GOOD = Outcome("cache.steps", "PASS", 1e-6)
OWN = Outcome("cache.chunks", "FAIL", 2.0, cause="the scan starts from zero", thread="huggingface/transformers#47087")
SHARED = Outcome("packing.gaps", "LIBRARY", 3.0, cause="a gap is taken for a border")


def result(*outcomes: Outcome, fault: str = "") -> Result:
    return Result("mamba:causal", "causal", "recurrence", outcomes, VERSIONS, fault=fault, command="clockhands check m")


def sections(card: str) -> dict[str, str]:
    """The text below each heading of the third level."""
    return {part.partition("\n")[0]: part for part in card.split("### ")[1:]}


def test_the_badge_changes_with_what_fails() -> None:
    assert describe_badge(result(GOOD)) == ("1 pass · transformers 5.23.0", "good")
    assert describe_badge(result(GOOD, SHARED)) == ("1 pass · 1 by the library · transformers 5.23.0", "warn")
    assert describe_badge(result(GOOD, OWN)) == ("1 fail, 1 pass · transformers 5.23.0", "bad")
    assert describe_badge(result(fault="cannot be built")) == ("not checked · transformers 5.23.0", "bad")


def test_the_card_tells_the_model_from_its_library() -> None:
    parts = sections(make_card(result(GOOD, OWN, SHARED)))
    own, shared = parts["What this model gets wrong"], parts["What the library does"]
    assert "the scan starts from zero" in own and "a gap" not in own
    assert "a gap is taken for a border" in shared and "scan" not in shared
    assert "[huggingface/transformers#47087](https://github.com/huggingface/transformers/issues/47087)" in own
    table = parts["What you may rely on"]
    assert "| resume | no" in table
    assert "transformers 5.23.0, torch 2.13.0: `clockhands check m`" in table


def test_a_sound_model_has_nothing_to_tell() -> None:
    parts = sections(make_card(result(GOOD)))
    assert "Nothing that the checks look for." in parts["What this model gets wrong"]
    assert "| yes" in sections(make_card(result(Outcome("shift", "PASS", 0.0))))["What you may rely on"]


def test_one_cause_of_several_checks_is_told_once() -> None:
    again = Outcome("cache.prefix", "FAIL", 1.0, cause=OWN.cause)
    own = sections(make_card(result(OWN, again)))["What this model gets wrong"]
    assert own.count("the scan starts from zero") == 1
    assert "`cache.chunks`, `cache.prefix`" in own


def test_a_model_that_cannot_be_built_says_so_and_text_stays_text() -> None:
    card = make_card(result(fault="ValueError: <b> | `x`"))
    assert r"\<b\> \| \`x\`" in card
    assert "### " not in card
