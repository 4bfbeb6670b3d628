"""Results as data: JSON, the line about what may be relied on, baselines, findings."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clockhands.checking.checks.check import CHECKS, USES, check, select
from clockhands.checking.outcome_words import sentence
from clockhands.checking.result import Result, changes, load
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import DataError, UsageError


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
        check("x", "a", "c", uses=("flying",))
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


def test_a_size_stands_beside_what_the_precision_does_by_itself() -> None:
    found = sentence(Outcome("precision.to", "LIBRARY", 0.6, note="rounded", floor=0.2))
    assert found == "LIBRARY 0.6 std, 3 times what that precision does by itself (rounded)."
    found = sentence(Outcome("precision.to", "LIBRARY", 0.6, floor=4.2e-7))
    assert found == "LIBRARY 0.6 std, 1,400,000 times what that precision does by itself."


def test_a_sentence_repeats_nothing() -> None:
    assert sentence(Outcome("x", "PROPERTY", 0.5, reason="absolute", cause="absolute")) == "PROPERTY 0.5 std. absolute."


def test_checks_are_chosen_by_name_or_group() -> None:
    assert [check.name for check in select(["padding.left"])] == ["padding.left.mask", "padding.left.positions"]
    assert "attention.flex" not in {check.name for check in select()}
    with pytest.raises(UsageError, match="unknown check 'paddin'; did you mean 'padding'"):
        select(["paddin"])


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
