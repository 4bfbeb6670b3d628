"""``clockhands check``: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.code_version import identify_code
from clockhands.checking.result import Result, versions
from clockhands.checking.runtimes.law import LAWS
from clockhands.checking.verdict.outcome import Outcome
from clockhands.cli import main
from clockhands.findings import Findings
from tests.checking.test_schema import SCHEMA, faults


def test_a_sound_model_is_0_and_a_fault_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--type", "llama:causal", "--tiny", "--only", "cache.steps,padding.right,shift"]) == 0
    out = capsys.readouterr().out
    assert "PASS      cache.steps, padding.right, shift" in out
    assert main(["check", "--type", "falcon+alibi:causal", "--tiny", "--only", "attention.sdpa"]) == 1
    out = capsys.readouterr().out
    assert "with eager attention ALiBi is added twice" in out
    assert out.splitlines()[0] == "FAIL  falcon+alibi:causal: 1 check fails"
    assert out.splitlines()[-1] == "You may rely on: other attention implementations no."


def test_a_baseline_forgives_what_was_so_before(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["check", "--type", "falcon+alibi:causal", "--tiny", "--only", "attention.sdpa"]
    assert main([*command, "--json"]) == 1
    last = tmp_path / "last.json"
    last.write_text(capsys.readouterr().out)
    assert main([*command, "--baseline", str(last)]) == 0
    found = json.loads(last.read_text())
    assert found["schema"] == 2
    found["outcomes"][0]["verdict"] = "PASS"
    last.write_text(json.dumps(found))
    assert main([*command, "--baseline", str(last)]) == 1
    assert "attention.sdpa: PASS became FAIL" in capsys.readouterr().err


def test_what_the_library_does_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("llama", "qwen3", "mistral"):
        assert main(["check", "--type", f"{name}:causal", "--tiny", "--only", "precision.to,packing.gaps"]) == 0
        first, _, *rest = capsys.readouterr().out.splitlines()
        assert first == f"PASS  {name}:causal: no fault of its own; 2 faults of its library touch it"
        assert [line.split(":")[0] for line in rest[:2]] == ["LIBRARY   precision.to", "LIBRARY   packing.gaps"]
        assert "times what that precision does by itself" in rest[0]


def test_a_port_against_its_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--type", "llama", "--tiny", "--against", "llama+yarn:causal"]) == 1
    assert "Explained by: the model leaves out the scaling 'yarn' of the reference" in capsys.readouterr().out
    assert main(["check", "--type", "llama", "--tiny", "--against", "llama"]) == 0


def test_checks_and_a_reference_in_one_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checked = ["check", "--type", "llama", "--tiny", "--only", "cache.steps,shift", "--json"]
    assert main(checked) == 0
    last = tmp_path / "last.json"
    last.write_text(capsys.readouterr().out)
    for reference, code in (("llama", 0), ("llama+yarn:causal", 1)):
        assert main([*checked, "--baseline", str(last), "--against", reference]) == code
        found = json.loads(capsys.readouterr().out)
        assert faults(found, SCHEMA) == []
        assert (found["against"]["same"], len(found["outcomes"])) == (not code, 2)
    page = tmp_path / "page"
    assert main([*checked[:-1], "--against", "llama+yarn:causal", "--report", str(page)]) == 1
    first, *others = Findings.load(page / "findings.json")
    assert (first.name, first.light, len(others)) == ("check.against", "bad", 3)
    opening = (page / "index.html").read_text("utf8").split('class="told">')[1].split("</p>")[0]
    assert opening.startswith("FAIL llama against llama+yarn:causal: ") and first.table.rows
    out = capsys.readouterr().out
    assert "FAIL  llama against llama+yarn:causal" in out
    assert out.splitlines()[-1].startswith("You may rely on: moved positions yes")


def test_a_report_is_written(tmp_path: Path) -> None:
    main(["check", "--type", "gpt2", "--tiny", "--only", "shift", "--report", str(tmp_path / "page")])
    assert "Does gpt2:causal handle position correctly?" in (tmp_path / "page" / "index.html").read_text()


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


def test_the_checks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    out = capsys.readouterr().out
    assert "packing.gaps" in out
    assert "attention.flex" in out
    assert main(["check", "--list", "--only", "shift"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["shift", "catches:"]


def test_the_checks_of_a_group_are_listed_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that a user's own module registered, behind those of all other groups."""
    last = list(CHECKS)[-1]
    monkeypatch.setitem(CHECKS._entries, "cache.mine", replace(CHECKS[last], name="cache.mine"))
    assert main(["check", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    groups = [group for group, _ in groupby(name.partition(".")[0] for name in names)]
    assert sorted(groups) == sorted(set(groups))
    assert "cache.mine" in names and set(names) == {*CHECKS, *LAWS}


WRONG = {
    (): "name one thing to check: a model, --type NAME, --all, --board FOLDER (or --list)",
    ("m", "--type", "llama"): "name one thing to check",
    ("--type", "llama"): "--type llama names no weights: add --tiny",
    ("--all", "f", "--jobs", "0"): "--jobs is 0; it must be 1 or more",
    ("--all", "f", "--limit", "0"): "--limit is 0; it must be more than 0 seconds",
    ("m", "--against", "r", "--jobs", "2"): "--against does not go with --jobs: it compares two models",
    ("m", "--tiny", "--weights", "streamed"): "--tiny does not go with --weights: the weights are initialised",
    ("--all", "--json", "--report", "f", "--verbose"): "--all does not go with --json, --report, --verbose",
    ("--all", "--dtype", "float64", "--device", "cpu"): "--all does not go with --dtype, --device: every architecture",
    ("--all", "--trust-remote-code", "--threads", "2"): "--all does not go with --trust-remote-code, --threads",
    ("--all", "--against", "r"): "--all does not go with --against",
    ("m", "--tiny", "--dtype", "float32", "--device", "cpu"): "--tiny does not go with --dtype, --device: the weights",
    ("--type", "llama", "--tiny", "--trust-remote-code"): "--type does not go with --trust-remote-code",
    ("m", "--json", "--verbose"): "--json does not go with --verbose: the JSON holds everything",
    ("m", "--jobs", "2", "--limit", "5"): "a model does not go with --jobs, --limit: they are about --all",
    ("--list", "--json"): "--list does not go with --json: nothing is checked",
    ("--type", "llama", "--tiny", "--only", "shft"): "unknown check 'shft'; did you mean 'shift'?",
}


@pytest.mark.parametrize("given", WRONG, ids=" ".join)
def test_wrong_usage_is_told_in_one_line(given: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *given]) == 2
    assert WRONG[given] in capsys.readouterr().err


def test_a_badge_and_a_card_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    badge, card = tmp_path / "badge.svg", tmp_path / "card.md"
    command = ["check", "--type", "gpt2", "--tiny", "--only", "shift", "--badge", str(badge), "--card", str(card)]
    assert main(command) == 0
    assert "transformers" in badge.read_text()
    assert "How gpt2:causal handles position" in card.read_text()
    assert main(["check", "--type", "bert", "--tiny", "--badge", str(badge)]) == 2
    assert "name one" in capsys.readouterr().err


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
