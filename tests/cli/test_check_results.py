"""What ``clockhands check`` prints of results, writes for a README, and returns beside a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from clockhands.checking.models.tiny import make_position_audible
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


def test_what_the_library_does_is_no_pass_unless_the_models_own_alone_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["check", "--type", "llama:causal", "--tiny", "--only", "precision.to,packing.gaps"]
    unsafe = "no fault of its own; 2 faults of its library touch it; not safe: positions with gaps, bf16 by .to()"
    for options, code, head in (([], 1, "FAIL"), (["--own"], 0, "PASS")):
        assert main([*command, *options]) == code
        lines = capsys.readouterr().out.splitlines()
        assert " ".join(lines).startswith(f"{head}  llama:causal: {unsafe} (without --against its base and")
        start = lines.index("You may rely on:")
        assert {line.split()[-1] for line in lines[start + 1 : start + 3]} == {"no"}
        assert [line.split(":")[0] for line in lines if line.startswith("LIBRARY")] == [
            "LIBRARY   precision.to",
            "LIBRARY   packing.gaps",
        ]


def test_frequencies_that_stay_stretched_are_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved Llama with dynamic NTK: a long text changes what a text of the original length says, and the cache."""
    config = LlamaConfig(
        vocab_size=120, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=200, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    )  # fmt: skip
    make_position_audible(LlamaForCausalLM(config).eval()).save_pretrained(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(tmp_path.parent)
    assert main(["check", str(tmp_path), "--only", "state,cache.across,cache.steps"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith(f"FAIL {tmp_path}") and "tokens after 400" in out and "single tokens across 200" in out
    assert f"::error file={tmp_path.name}/config.json,line=1,title=clockhands check state.medium::" in out
    for options, code in (([], 1), (["--own"], 0)):
        assert main(["check", str(tmp_path), *options]) == code
        out = " ".join(capsys.readouterr().out.split())
        assert "one text after another no" in out and "cached decoding no" in out


def test_a_yes_says_how_long_the_texts_were(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--type", "llama:causal", "--tiny"])
    out = " ".join(capsys.readouterr().out.split())
    assert "one text after another yes, within 96 tokens" in out and "cached decoding yes, within 40 tokens" in out
    assert max(map(len, out.splitlines())) and "moved positions yes" in out


def test_pipelines_get_annotations_and_no_line_is_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    main(["check", "--type", "gpt_oss", "--tiny"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("::error title=clockhands check packing.positions::") for line in lines)
    assert all(len(line) <= 160 for line in lines if not line.startswith("::"))


def test_what_cannot_be_written_or_built_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--type", "gpt2", "--tiny", "--only", "shift", "--card", "/"]) == 2
    assert "/ is a folder: name a file to write to" in capsys.readouterr().err
    LlamaConfig(vocab_size=160, hidden_size=32, num_attention_heads=2, num_hidden_layers=1).save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 160', '"vocab_size": -1'))
    assert main(["check", str(tmp_path), "--tiny"]) == 1
    assert "Traceback" not in (told := capsys.readouterr().err) and str(tmp_path) in told


def test_a_badge_and_a_card_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    badge, card = tmp_path / "badge.svg", tmp_path / "card.md"
    command = ["check", "--type", "gpt2", "--tiny", "--only", "shift", "--badge", str(badge), "--card", str(card)]
    assert main(command) == 0
    assert "transformers" in badge.read_text()
    assert "How gpt2:causal handles position" in card.read_text()
    assert main(["check", "--type", "bert", "--tiny", "--badge", str(badge)]) == 2
    assert "name one" in capsys.readouterr().err
