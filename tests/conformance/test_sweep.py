"""The sweep goes on where a model hangs or crashes, and begins again where it stopped."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clockhands.checking.result import Result, versions
from clockhands.checking.verdict.outcome import Outcome
from clockhands.errors import DataError
from tests.conformance.scripts import matrix, sweeping
from tests.conformance.worker import answer

RESULT = Result("any", "causal", "RoPE", (Outcome("shift", "PASS", 1e-7),), versions())
answer_at_once = partial(answer, result=RESULT.as_dict())


def swept(names: list[str], folder: Path, **options: Any) -> list[str]:
    """Return the builds that were checked in this sweep, in their order."""
    told: list[str] = []
    sweeping.sweep(names, folder, progress=lambda result: told.append(result.model), check=answer_at_once, **options)
    return told


def test_a_crash_and_a_hang_are_recorded_and_the_rest_is_done(tmp_path: Path) -> None:
    names = ["a:causal", "crash:causal", "b:causal", "hang:causal", "c:causal"]
    found = sweeping.sweep(names, tmp_path, jobs=2, limit=10.0, check=answer_at_once)
    assert [result.model for result in found] == names
    faults = {result.model: result.fault for result in found if result.fault}
    assert faults == {"crash:causal": "the process ended by itself", "hang:causal": "no answer within 10 s"}


def test_an_interrupted_sweep_is_resumed(tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    assert swept(["a:causal"], tmp_path, only=["shift"]) == ["a:causal"]
    kept.write_text(kept.read_text() + '{"schema": 2, "model": "b:cau')  # stopped in the middle of a line
    assert swept(["a:causal", "b:causal"], tmp_path, only=["shift"]) == ["b:causal"]
    assert swept(["a:causal"], tmp_path) == ["a:causal"], "the matrix would hold one check and seem whole"


def test_what_other_checks_measured_is_done_again_after_what_nobody_did(tmp_path: Path) -> None:
    old = Result("a:causal", "causal", "RoPE", (Outcome("shift", "FAIL", 1.0),), {**versions(), "code": "0ld"})
    (tmp_path / "results.jsonl").write_text(json.dumps(old.as_dict()) + "\n")
    assert [kept.versions["code"] for kept in sweeping.read_kept(tmp_path)] == ["0ld"]
    assert swept(["a:causal", "b:causal"], tmp_path) == ["b:causal", "a:causal"]
    assert {kept.versions["code"] for kept in sweeping.read_kept(tmp_path)} == {sweeping.identify_code()}


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no result of a sweep"):
        sweeping.read_kept(tmp_path)


def test_the_script_checks_a_real_architecture_and_writes_the_matrix(tmp_path: Path) -> None:
    assert sweeping.main([str(tmp_path), "--builds", "rwkv:causal", "--only", "cache.steps"]) == 0
    data = matrix.read_matrix(tmp_path)
    assert data["counts"]["FAIL"] == 1 and any("rows of a batch mix" in text for text in data["texts"])
    assert "rwkv:causal" in (tmp_path / "index.html").read_text("utf8")


def test_every_build_has_one_name() -> None:
    names = sweeping.list_builds()
    assert len(names) == len(set(names)) >= 240
    assert [name for name in names if name.startswith("gpt2:")] == ["gpt2:causal"]


def test_a_comment_changes_no_version_and_a_number_does() -> None:
    assert sweeping.strip_comments("X = 1  # why\n") == sweeping.strip_comments("X = 1\n")
    assert sweeping.strip_comments('"""Doc."""\nX = 1\n') == sweeping.strip_comments('"""Other."""\nX = 1\n')
    assert sweeping.strip_comments("X = 1\n") != sweeping.strip_comments("X = 2\n")
