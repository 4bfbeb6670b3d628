"""Outcomes of a model: what may be relied on, the words, the JSON, and what became worse."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clockhands.checking.checks import check as checks
from clockhands.checking.checks.check import CHECKS, USES
from clockhands.checking.examination import check, examine
from clockhands.checking.result import SHOWN_BY, Reliance, Result, changes, describe_reliances, list_reliances, load
from clockhands.checking.verdict.outcome import Outcome, VerdictName, sentence
from clockhands.errors import DataError
from tests.checking.checks.planted import Correct


def find_checks(use: str) -> list[str]:
    return [name for name, each in CHECKS.items() if use in each.uses]


def make_outcomes(use: str, given: dict[str, VerdictName] | None = None) -> list[Outcome]:
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
        others: tuple[VerdictName, ...] = ("FAIL", "WARN", "LIBRARY", "PROPERTY")
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


def test_untried_checks_are_named_and_many_are_counted() -> None:
    found = judge_use("static cache", [Outcome("cache.static", "PASS", 0.0)])  # and an opt-in one was not asked for
    assert (found.safe, found.untried, found.describe()) == (True, ("export.static",), "yes (untried: export.static)")
    for use, count, said in (
        ("bf16 by from_pretrained", 2, "yes (untried: precision.load, precision.distance)"),
        ("one text after another", 3, "yes (3 of 9 checks untried)"),
    ):
        rest: dict[str, VerdictName] = dict.fromkeys(find_checks(use)[:count], "N/A")
        assert judge_use(use, make_outcomes(use, rest)).describe() == said


def test_a_use_that_no_check_tried_itself_is_not_called_safe() -> None:
    """What else breaks it can be seen without trying it, and then the use is unsafe."""
    for use, names in SHOWN_BY.items():
        assert all(use in CHECKS[name].uses for name in names)
        lacking: dict[str, VerdictName] = dict.fromkeys(names, "N/A")
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


def result(*outcomes: Outcome, model: str = "m") -> Result:
    return Result(model, "causal", "RoPE", outcomes, {"transformers": "5.23"}, 1.0, command="clockhands check m")


def test_json_returns_the_same() -> None:
    found = result(
        Outcome("shift", "FAIL", 1.5, 1.4, "note", cause="why"), Outcome("padding.right", "N/A", reason="no")
    )
    again = Result.from_dict(json.loads(json.dumps(found.as_dict())))
    assert again.outcomes == found.outcomes
    assert again.failed


def test_another_schema_is_refused() -> None:
    with pytest.raises(DataError, match="written in schema 9, this is 2"):
        Result.from_dict({**result().as_dict(), "schema": 9})
    with pytest.raises(DataError, match="no result of clockhands check"):
        Result.from_dict({"schema": 2})


def test_every_check_belongs_to_a_use() -> None:
    assert [name for name, each in CHECKS.items() if not each.uses or not set(each.uses) <= set(USES)] == []
    with pytest.raises(ValueError, match=r"the check x names the uses \('flying',\): name at least one of USES"):
        checks.check("x", "c", uses=("flying",))
    assert "x" not in CHECKS


def test_only_what_became_worse_is_a_change() -> None:
    before = [
        result(Outcome("shift", "PROPERTY", 1.0), Outcome("load.state", "FAIL", 1.0), Outcome("state.short", "PASS"))
    ]
    after = [result(Outcome("shift", "FAIL", 1.0), Outcome("load.state", "PASS"), Outcome("cache.steps", "FAIL", 1.0))]
    assert changes(before, after) == ["m shift: PROPERTY became FAIL", "m cache.steps: new, FAIL"]
    assert changes(after, after) == []


def test_what_is_not_judged_any_more_is_worse() -> None:
    safe = result(Outcome("shift", "PASS", 0.0))
    assert changes([safe], [result(Outcome("shift", "N/A"))]) == ["m shift: PASS became N/A"]
    assert changes([result(Outcome("shift", "FAIL", 1.0))], [result(Outcome("shift", "N/A"))]) == []
    broken = Result("m", "causal", "", (), fault="cannot be built: KeyError")
    assert changes([safe], [broken]) == ["m: cannot be built: KeyError"]
    assert changes([broken], [broken]) == []
    other = result(Outcome("shift", "PASS", 0.0), model="other")
    assert changes([other], [safe]) == ["m: the baseline is about other"]
    assert changes([safe, other], [safe]) == []


def test_the_first_line_counts_what_is_the_models_own() -> None:
    shared = Outcome("packing.gaps", "LIBRARY", 1.0, measured="FAIL", known="packing-gaps")
    said = "no fault of its own; 1 fault of its library touches it; not safe: positions with gaps"
    assert result(shared).summary() == f"FAIL  m: {said}"
    assert result(shared).summary(own=True).startswith("PASS  m: no fault of its own; 1 fault")
    both = result(shared, Outcome("precision.to", "LIBRARY", 1.0), Outcome("shift", "FAIL", 1.0))
    assert both.summary().startswith("FAIL  m: 1 check fails; 2 faults of its library touch it; not safe: ")
    assert both.summary(own=True).startswith("FAIL  m: 1 check fails")
    twice = [Outcome(name, "LIBRARY", 1.0, cause="the scan clamps") for name in ("cache.steps", "cache.mask")]
    assert result(*twice, shared).summary().startswith("FAIL  m: no fault of its own; 2 faults of its library touch it")
    assert (result(shared).failed, result(shared).failed_itself, both.failed_itself) == (True, False, True)
    assert result().summary() == "PASS  m: no fault of its own"
    assert Result("m", "causal", "", (), fault="broken").summary() == "FAIL  m: broken"


def test_a_missing_or_strange_baseline_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read check results from .*last\.json: there is no such file$"):
        load(tmp_path / "last.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"cannot read check results from .*binary\.json"):
        load(tmp_path / "binary.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match=r"other\.json: this is no result of clockhands check: KeyError 'schema'"):
        load(tmp_path / "other.json")
    (tmp_path / "list.json").write_text(json.dumps([result().as_dict(), result().as_dict()]))
    (tmp_path / "results.jsonl").write_text("\n".join([json.dumps(result().as_dict())] * 3) + "\n")
    assert (len(load(tmp_path / "list.json")), len(load(tmp_path / "results.jsonl"))) == (2, 3)


def test_findings_stand_faults_first_and_carry_the_command() -> None:
    found = result(Outcome("padding.right", "PASS", 0.0), Outcome("shift", "FAIL", 1.5, 1.4, cause="why", safe="how"))
    findings = found.findings()
    assert [item.name for item in findings] == ["check.rely", "check.shift", "check.padding.right"]
    assert findings["check.shift"].light == "bad"
    assert findings["check.shift"].command == "clockhands check m --only shift"
    effect = "the effect in standard deviations of the logits is"
    assert findings["check.shift"].verdict == f"It fails: {effect} 1.5. why. Safe: how."
    assert findings["check.padding.right"].verdict == f"It passes: {effect} exactly 0."


def test_a_page_tells_an_effect_in_a_sentence() -> None:
    effect = "the effect in standard deviations of the logits is"
    outcomes = (
        Outcome("shift", "PASS", 1.5e-6, note="5 pads after 20 tokens"),
        Outcome("precision.to", "LIBRARY", 0.6, floor=0.2),
        Outcome("export", "N/A", note="nothing to export"),
    )
    findings = result(*outcomes).findings()
    assert [findings[f"check.{outcome.check}"].verdict for outcome in outcomes] == [
        f"It passes: {effect} at most 0.001, which rounding alone may do (5 pads after 20 tokens).",
        "It fails, by code of its library that many models share: "
        f"{effect} 0.6, 3 times what that precision does by itself.",
        "It does not apply (nothing to export).",
    ]


TIMES = "times what that precision does by itself"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("x", "LIBRARY", 0.6, note="rounded", floor=0.2), f"0.6 std, 3 {TIMES} (rounded)."),
        (Outcome("x", "LIBRARY", 0.6, floor=4.2e-7), f"0.6 std, 1,400,000 {TIMES}."),
        (Outcome("x", "PROPERTY", 0.5, reason="absolute", cause="absolute"), "0.5 std. absolute."),
    ],
    ids=["note", "rounding", "nothing twice"],
)
def test_a_size_stands_beside_what_the_precision_does_by_itself(outcome: Outcome, said: str) -> None:
    assert sentence(outcome) == f"{outcome.verdict} {said}"


def test_a_result_of_an_earlier_version_is_read() -> None:
    """Fields that were added within the schema are empty."""
    new = Result("m", "causal", "RoPE", (Outcome("shift", "WARN", 1.0, measured="FAIL", known="entry"),)).as_dict()
    assert Result.from_dict(new).outcomes[0].change == "FAIL -> WARN: known fault entry of the library"
    new["schema"] = 1
    for field in ("measured", "known", "floor"):
        del new["outcomes"][0][field]
    old = Result.from_dict(new)
    assert (old.task, old.outcomes) == ("causal", (Outcome("shift", "WARN", 1.0),))


@pytest.mark.parametrize(("was", "now"), list(pairwise(["PASS", "PROPERTY", "WARN", "FAIL"])))
def test_each_verdict_is_worse_than_the_one_before_it(was: Any, now: Any) -> None:
    before, after = result(Outcome("shift", was, 1.0)), result(Outcome("shift", now, 1.0))
    assert changes([before], [after]) == [f"m shift: {was} became {now}"]
    assert changes([after], [before]) == []


def test_the_page_opens_with_the_summary_and_what_is_not_safe() -> None:
    """What rounding may do stands beside a fault, and not beside a check that passed by a change."""
    found = result(
        Outcome("packing.gaps", "FAIL", size=2.8, floor=2e-6),
        Outcome("precision.to", "LIBRARY", size=0.9, floor=0.05),
        Outcome("order.matters", "PASS", size=1.8),
    ).findings()
    opening = found["check.rely"].details["opening"]
    assert opening.startswith("FAIL  m: 1 check fails; 1 fault of its library touches it; not safe: ")
    assert "positions with gaps" in opening
    references = {
        name: found[f"check.{name}"].references[0] for name in ("packing.gaps", "precision.to", "order.matters")
    }
    assert {name: reference.interval for name, reference in references.items()} == {
        "packing.gaps": (0.0, 1e-3),
        "precision.to": (0.0, 0.05),
        "order.matters": None,
    }
