"""``clockhands check --all`` and ``--board``: what they return, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.checking.code_version import identify_code
from clockhands.checking.result import Result, versions
from clockhands.checking.verdict.outcome import Outcome
from clockhands.cli import main


def test_the_matrix_is_1_if_anything_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are kept from a sweep before, so that nothing is checked again: the exit code is about them."""
    monkeypatch.setattr("clockhands.checking.sweep.list_builds", lambda: ["x:causal"])
    kept = tmp_path / "results.jsonl"
    command, installed = ["check", "--all", str(tmp_path), "--only", "shift"], {**versions(), "code": identify_code()}
    for verdict, code in (("PASS", 0), ("WARN", 0), ("LIBRARY", 0), ("FAIL", 1)):
        outcome = Outcome("shift", verdict, 1.0)
        kept.write_text(json.dumps(Result("x:causal", "causal", "RoPE", (outcome,), installed).as_dict()) + "\n")
        assert main(command) == code
        err = capsys.readouterr().err
        assert ("1 checks fail or models cannot be built; --baseline" in err) == bool(code)
        assert json.loads((tmp_path / "matrix.json").read_text("utf8"))["counts"][verdict] == 1
    before = tmp_path / "before.jsonl"
    before.write_text(kept.read_text())
    assert main([*command, "--baseline", str(before)]) == 0
    broken = Result("x:causal", "causal", "", (), installed, fault="cannot be built")
    kept.write_text(json.dumps(broken.as_dict()) + "\n")
    assert main(command) == 1


def test_options_of_sweeps_are_honoured_or_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, told in (
        (["--all", str(tmp_path), "--kept", "--jobs", "1"], "--kept checks nothing"),
        (["--all", str(tmp_path), "--builds", "bert"], "name one"),
        (["--all", str(tmp_path), "--builds", "nobody"], "unknown architecture 'nobody'"),
        (["--all", str(tmp_path), "--releases", "2"], "--releases is about --board"),
        (["--board", str(tmp_path), "--badge", "b.svg"], "--board does not go with --badge"),
        (["--board", str(tmp_path), "--releases", "all"], "neither a number of minor releases"),
        (["--all", str(tmp_path), "--card", "c.md"], "--all does not go with --card"),
    ):
        assert main(["check", *words]) == 2
        assert told in capsys.readouterr().err
