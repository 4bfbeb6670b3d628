"""What may be relied on: a yes is about what was tried, and says what was not."""

from __future__ import annotations

import json

import pytest

from clockhands.checking.checks.check import CHECKS, USES
from clockhands.checking.examination import check, examine
from clockhands.checking.reliance import SHOWN_BY, Reliance, describe_reliances, list_reliances
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome, Verdict
from tests.checking.checks.planted import Correct


def find_checks(use: str) -> list[str]:
    return [name for name, each in CHECKS.items() if use in each.uses]


def make_outcomes(use: str, given: dict[str, Verdict] | None = None) -> list[Outcome]:
    """All checks of a use, which pass where nothing else is said."""
    return [Outcome(name, (given or {}).get(name, "PASS"), 0.0) for name in find_checks(use)]


def judge_use(use: str, outcomes: list[Outcome]) -> Reliance:
    return next(each for each in list_reliances(outcomes) if each.use == use)


@pytest.mark.parametrize("use", USES)
def test_a_use_is_safe_only_if_all_its_checks_were_made_and_passed(use: str) -> None:
    names = find_checks(use)
    assert names, "a use that no check is about"
    assert judge_use(use, make_outcomes(use)).describe() == "yes"
    for name in names:
        others: tuple[Verdict, ...] = ("FAIL", "WARN", "LIBRARY", "PROPERTY")
        for verdict in others:
            assert judge_use(use, make_outcomes(use, {name: verdict})).describe() == "no"
        if not (CHECKS[name].optional or CHECKS[name].shared):
            assert judge_use(use, [o for o in make_outcomes(use) if o.check != name]).safe is None, "it was not made"
    assert judge_use(use, make_outcomes(use, dict.fromkeys(names, "N/A"))).safe is None


@pytest.mark.parametrize("use", USES)
def test_a_yes_names_each_check_that_did_not_apply(use: str) -> None:
    """But those of prefix caches and moved keys, which no model can be put to, only a program."""
    for name in find_checks(use):
        found = judge_use(use, make_outcomes(use, {name: "N/A"}))
        of_programs = name in ("cache.reused", "cache.moved")
        assert found.untried == (() if of_programs else (name,))
        if found.safe:
            assert found.describe() == ("yes" if of_programs else f"yes (untried: {name})")


def test_an_opt_in_check_that_was_not_asked_for_is_untried() -> None:
    found = judge_use("static cache", [Outcome("cache.static", "PASS", 0.0)])
    assert (found.safe, found.untried, found.describe()) == (True, ("export.static",), "yes (untried: export.static)")


def test_many_untried_checks_are_counted() -> None:
    named = dict.fromkeys(("precision.load", "precision.distance"), "N/A")
    found = judge_use("bf16 by from_pretrained", make_outcomes("bf16 by from_pretrained", named))  # type: ignore[arg-type]
    assert found.describe() == "yes (untried: precision.load, precision.distance)"
    use = "one text after another"
    rest = dict.fromkeys(find_checks(use)[:3], "N/A")
    assert judge_use(use, make_outcomes(use, rest)).describe() == "yes (3 of 9 checks untried)"  # type: ignore[arg-type]


def test_a_use_that_no_check_tried_itself_is_not_called_safe() -> None:
    """What else breaks it can be seen without trying it, and then the use is unsafe."""
    for use, names in SHOWN_BY.items():
        assert all(use in CHECKS[name].uses for name in names)
        lacking: dict[str, Verdict] = dict.fromkeys(names, "N/A")
        assert judge_use(use, make_outcomes(use, lacking)).safe is None
        for name in set(find_checks(use)) - set(names):
            assert judge_use(use, make_outcomes(use, {**lacking, name: "FAIL"})).safe is False


def test_an_encoder_is_not_said_to_generate_nor_a_model_without_a_cache_to_decode_with_one() -> None:
    (encoder,) = examine("bert:masked", tiny=True)
    uses = ("left-padded generate", "cached decoding", "encoder_outputs", "inputs_embeds", "a changed configuration")
    assert [encoder.rely()[use] for use in uses] == [None, None, None, True, None]

    class WithoutACache(Correct):
        new_cache = None

        def forward(self, ids, mask=None, positions=None):  # type: ignore[no-untyped-def]
            return super().forward(ids, mask, positions)

    facts = check(WithoutACache(), only=["cache", "causal", "generate"]).facts
    assert facts["reliance"] == "You may rely on: nothing that was checked whole."


def test_the_last_line_leaves_out_what_was_not_checked() -> None:
    packing = [Outcome("packing.positions", "WARN", 2.0), Outcome("packing.gaps", "N/A", reason="no")]
    told = describe_reliances(list_reliances([*make_outcomes("right padding"), *packing]))
    assert told == "You may rely on: right padding yes · packing no."
    assert describe_reliances(list_reliances([])) == "You may rely on: nothing that was checked whole."


def test_one_side_of_an_encoder_decoder_is_enough_to_make_a_use_unsafe() -> None:
    use = "left padding by the mask alone"
    both = [*make_outcomes(use), Outcome("source.padding.left.mask", "PROPERTY", 1.0)]
    assert judge_use(use, both).safe is False
    assert judge_use(use, [*make_outcomes(use), Outcome("source.padding.left.mask", "N/A")]).describe() == "yes"


def test_json_and_page_say_what_a_yes_does_not_cover() -> None:
    result = Result("m", "causal", "RoPE", tuple(make_outcomes("saving and loading", {"load.meta": "N/A"})))
    assert json.loads(json.dumps(result.as_dict()))["untried"]["saving and loading"] == ["load.meta"]
    table = result.findings()["check.rely"].table
    assert table is not None and ("saving and loading", "yes", "load.meta") in [tuple(row) for row in table.rows]
