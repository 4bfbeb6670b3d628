"""The JSON of a check keeps to its schema, ``result.schema.json``."""

from __future__ import annotations

import dataclasses
import json
from importlib import resources
from typing import Any

import pytest

from clockhands.checking.against import Deviation
from clockhands.checking.result import Result
from clockhands.checking.verdict.outcome import Outcome
from clockhands.cli import main

SCHEMA: dict[str, Any] = json.loads(resources.files("clockhands.checking").joinpath("result.schema.json").read_text())
TYPES = {"string": str, "number": (int, float), "boolean": bool, "null": type(None), "object": dict, "array": list}


def faults(value: Any, rule: dict[str, Any], at: str = "$") -> list[str]:
    """What is wrong with a value by the part of JSON Schema that the file uses."""
    if "$ref" in rule:
        return faults(value, SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]], at)
    if "oneOf" in rule:
        found = [faults(value, each, at) for each in rule["oneOf"]]
        return [] if sum(not each for each in found) == 1 else min(found, key=len)
    if "const" in rule and value != rule["const"]:
        return [f"{at} is {value!r}"]
    if "enum" in rule and value not in rule["enum"]:
        return [f"{at} is {value!r}"]
    named = [rule["type"]] if isinstance(rule.get("type"), str) else rule.get("type", [])
    if named and not any(isinstance(value, TYPES[each]) for each in named):
        return [f"{at} is a {type(value).__name__}"]
    wrong = [f"{at} lacks {name}" for name in rule.get("required", ()) if name not in value]
    if isinstance(value, list) and "items" in rule:
        wrong += [each for n, item in enumerate(value) for each in faults(item, rule["items"], f"{at}[{n}]")]
    if isinstance(value, dict):
        known, rest = rule.get("properties", {}), rule.get("additionalProperties", True)
        for name, item in value.items():
            if name in known:
                wrong += faults(item, known[name], f"{at}.{name}")
            elif rest is False:
                wrong.append(f"{at} has {name}")
            elif isinstance(rest, dict):
                wrong += faults(item, rest, f"{at}.{name}")
    return wrong


def test_what_the_command_prints_keeps_to_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """Two heads make a list, one a single object; failures carry causes, which are fields of it too."""
    main(["check", "--type", "roberta", "--tiny", "--only", "generate.forward,padding", "--json"])
    two = json.loads(capsys.readouterr().out)
    main(["check", "--type", "roberta:causal", "--tiny", "--only", "generate.forward", "--json"])
    one = json.loads(capsys.readouterr().out)
    assert (len(two), faults(two, SCHEMA), faults(one, SCHEMA)) == (2, [], [])


def test_the_schema_speaks_of_every_field_and_no_other() -> None:
    outcome = SCHEMA["$defs"]["outcome"]
    names = {each.name for each in dataclasses.fields(Outcome)}
    assert set(outcome["properties"]) == set(outcome["required"]) == names
    plain = Result("m", "causal", "RoPE", ()).as_dict()
    result = SCHEMA["$defs"]["result"]
    assert set(result["properties"]) - {"against"} == set(result["required"]) | {"untried"} == set(plain)
    deviation = SCHEMA["$defs"]["against"]
    told = Deviation("m", "r", 0.0, None, None, "", ()).as_dict()
    assert set(deviation["properties"]) == set(deviation["required"]) == set(told)


def test_what_was_written_before_a_field_was_added_keeps_to_the_schema() -> None:
    old = Result("m", "causal", "RoPE", (Outcome("shift", "PASS", 0.0),)).as_dict()
    del old["untried"]
    assert faults(old, SCHEMA) == [] and Result.from_dict(old).rely()["moved positions"] is True


def test_what_is_not_of_the_schema_is_seen() -> None:
    good = Result("m", "causal", "RoPE", (Outcome("shift", "PASS", 0.0),)).as_dict()
    assert faults(good, SCHEMA) == []
    assert faults({**good, "extra": 1}, SCHEMA) == ["$ has extra"]
    assert faults({**good, "schema": 3}, SCHEMA) == ["$.schema is 3"]
    assert faults({**good, "outcomes": [{**good["outcomes"][0], "verdict": "OK"}]}, SCHEMA) == [
        "$.outcomes[0].verdict is 'OK'"
    ]
