"""What ``clockhands check`` prints of results, writes for a README, and returns beside a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.cli import main


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


def test_a_badge_and_a_card_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    badge, card = tmp_path / "badge.svg", tmp_path / "card.md"
    command = ["check", "--type", "gpt2", "--tiny", "--only", "shift", "--badge", str(badge), "--card", str(card)]
    assert main(command) == 0
    assert "transformers" in badge.read_text()
    assert "How gpt2:causal handles position" in card.read_text()
    assert main(["check", "--type", "bert", "--tiny", "--badge", str(badge)]) == 2
    assert "name one" in capsys.readouterr().err
