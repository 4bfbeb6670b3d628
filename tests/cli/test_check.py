"""``clockhands check``: what it prints, what it returns, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from clockhands.checking.checks.check import CHECKS
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
    assert out.startswith(
        "FAIL  falcon+alibi:causal: 1 check fails; not safe: other attention implementations (without"
    )
    assert "other attention implementations    no" in out


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
    assert "moved positions                    yes" in out


def test_a_report_is_written(tmp_path: Path) -> None:
    main(["check", "--type", "gpt2", "--tiny", "--only", "shift", "--report", str(tmp_path / "page")])
    assert "Does gpt2:causal handle position correctly?" in (tmp_path / "page" / "index.html").read_text()


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
    assert "cache.mine" in names and set(names) == set(CHECKS)
