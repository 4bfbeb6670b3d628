"""Results as data: JSON, the line about what may be relied on, baselines, findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.checking.checks.check import CHECKS, select
from clockhands.checking.result import USES, Result, changes, load, sentence
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
    with pytest.raises(DataError, match="written in schema 9, this is 1"):
        Result.from_dict({**result().as_dict(), "schema": 9})
    with pytest.raises(DataError, match="no result of clockhands check"):
        Result.from_dict({"schema": 1})


def test_the_last_line_tells_safe_from_unsafe_and_leaves_out_what_was_not_checked() -> None:
    found = result(
        Outcome("padding.right", "PASS", 0.0),
        Outcome("padding.content", "PASS", 0.0),
        Outcome("packing.positions", "WARN", 2.0),
        Outcome("cache.rollback", "N/A", reason="none"),
    )
    assert found.reliance() == "You may rely on: right padding yes · packing no."
    assert result().reliance() == "You may rely on: nothing that was checked."


def test_one_side_of_an_encoder_decoder_is_enough_to_make_a_use_unsafe() -> None:
    both = result(Outcome("padding.left.mask", "PASS", 0.0), Outcome("source.padding.left.mask", "PROPERTY", 1.0))
    assert both.rely()["left padding by the mask alone"] is False


def test_uses_stand_on_checks_that_exist() -> None:
    assert {name for names in USES.values() for name in names} <= set(CHECKS)


def test_only_what_became_worse_is_a_change() -> None:
    before = [
        result(Outcome("shift", "PROPERTY", 1.0), Outcome("load.state", "FAIL", 1.0), Outcome("state.short", "PASS"))
    ]
    after = [result(Outcome("shift", "FAIL", 1.0), Outcome("load.state", "PASS"), Outcome("cache.steps", "FAIL", 1.0))]
    assert changes(before, after) == ["m shift: PROPERTY became FAIL", "m cache.steps: new, FAIL"]
    assert changes(after, after) == []


def test_a_missing_or_strange_baseline_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read check results from .*last\.json: No such file or directory$"):
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
    assert findings["check.shift"].verdict == "FAIL 1.5 std. why. Safe: how."


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
    for field in ("measured", "known"):
        del new["outcomes"][0][field]
    old = Result.from_dict(new)
    assert (old.task, old.outcomes) == ("causal", (Outcome("shift", "WARN", 1.0),))
