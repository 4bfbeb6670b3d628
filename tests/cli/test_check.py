"""Which options of ``clockhands check`` go together, and one line for those that do not."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from clockhands.checking.checks.check import CHECKS
from clockhands.checking.models.tiny import make_position_audible
from clockhands.cli import main
from clockhands.cli.check import _print_outcome, split_names
from clockhands.errors import UsageError
from clockhands.findings import Findings
from tests.checking.test_schema import SCHEMA, faults
from tests.cli.conftest import Capture, Patch

WRONG = {
    (): "name one thing to check: a model or --type NAME (or --list)",
    ("m", "--type", "llama"): "name one thing to check",
    ("--type", "llama"): "--type llama names no weights: add --tiny",
    ("m", "--tiny", "--weights", "streamed"): "--tiny does not go with --weights: the weights are initialised",
    ("m", "--tiny", "--dtype", "float32", "--device", "cpu"): "--tiny does not go with --dtype, --device: the weights",
    ("--type", "llama", "--tiny", "--trust-remote-code"): "--type does not go with --trust-remote-code",
    ("m", "--json", "--verbose"): "--json does not go with --verbose: the JSON holds everything",
    ("--list", "--json"): "--list does not go with --json: nothing is checked",
    ("--type", "llama", "--tiny", "--only", "shft"): "unknown check 'shft'; did you mean 'shift'?",
}


@pytest.mark.parametrize("given", WRONG, ids=" ".join)
def test_wrong_usage_is_told_in_one_line(given: tuple[str, ...], capsys: Capture) -> None:
    assert main(["check", *given]) == 2
    assert WRONG[given] in capsys.readouterr().err


def test_names_stand_between_commas() -> None:
    assert split_names("shift, cache.steps,,") == ["shift", "cache.steps"]
    assert split_names(None) is None
    for nothing in ("", ",", " , "):
        with pytest.raises(UsageError, match="names no check"):
            split_names(nothing)


def test_a_baseline_forgives_what_was_so_before(capsys: Capture, tmp_path: Path) -> None:
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
    last.write_text(json.dumps({**found, "model": "\x1b[31mred"}))
    assert main([*command, "--baseline", str(last)]) == 1
    assert "the baseline is about ␛[31mred" in capsys.readouterr().err


def test_what_the_library_does_is_no_pass_unless_the_models_own_alone_counts(capsys: Capture) -> None:
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


def test_frequencies_that_stay_stretched_are_no_pass(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
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


def test_a_yes_says_how_long_the_texts_were(capsys: Capture) -> None:
    main(["check", "--type", "llama:causal", "--tiny"])
    out = " ".join(capsys.readouterr().out.split())
    assert "one text after another yes, within 96 tokens" in out and "cached decoding yes, within 88 tokens" in out
    assert max(map(len, out.splitlines())) and "moved positions yes" in out


def test_pipelines_get_annotations_and_no_line_is_long(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    main(["check", "--type", "gpt_oss", "--tiny"])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("::error title=clockhands check packing.positions::") for line in lines)
    assert all(len(line) <= 160 for line in lines if not line.startswith("::"))


def test_what_cannot_be_written_or_built_is_one_message(tmp_path: Path, capsys: Capture) -> None:
    assert main(["check", "--type", "gpt2", "--tiny", "--only", "shift", "--card", "/"]) == 2
    assert "/ is a folder: name a file to write to" in capsys.readouterr().err
    LlamaConfig(vocab_size=160, hidden_size=32, num_attention_heads=2, num_hidden_layers=1).save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 160', '"vocab_size": -1'))
    assert main(["check", str(tmp_path), "--tiny"]) == 1
    assert "Traceback" not in (told := capsys.readouterr().err) and str(tmp_path) in told


def test_a_badge_and_a_card_are_written(capsys: Capture, tmp_path: Path) -> None:
    badge, card = tmp_path / "badge.svg", tmp_path / "card.md"
    command = ["check", "--type", "gpt2", "--tiny", "--only", "shift", "--badge", str(badge), "--card", str(card)]
    assert main(command) == 0
    assert "transformers" in badge.read_text()
    assert "How gpt2:causal handles position" in card.read_text()
    assert main(command) == 0, "its own are written again"
    drawn = '<svg xmlns="http://www.w3.org/2000/svg" width="20" role="img" aria-label="logo"/>\n'
    for option, name, text in (("--card", "README.md", "## How to use my model\n"), ("--badge", "logo.svg", drawn)):
        (tmp_path / name).write_text(text)
        capsys.readouterr()
        assert main([*command[:-4], option, str(tmp_path / name)]) == 2
        out, err = capsys.readouterr()
        assert f"{name} exists, and no earlier check wrote it; name another file" in err
        assert (out, (tmp_path / name).read_text()) == ("", text), "nothing was checked before, or written"
    assert main(["check", "--type", "bert", "--tiny", "--badge", str(badge)]) == 2
    assert "name one" in capsys.readouterr().err


def test_a_sound_model_is_0_and_a_fault_is_1(capsys: Capture) -> None:
    assert main(["check", "--type", "llama:causal", "--tiny", "--only", "cache.steps,padding.right,shift"]) == 0
    out = capsys.readouterr().out
    assert "PASS      cache.steps, shift, padding.right" in out
    assert main(["check", "--type", "falcon+alibi:causal", "--tiny", "--only", "attention.sdpa"]) == 1
    out = capsys.readouterr().out
    assert "with eager attention ALiBi is added twice" in out
    assert out.startswith(
        "FAIL  falcon+alibi:causal: 1 check fails; not safe: other attention implementations (without"
    )
    assert "other attention implementations    no" in out


def test_a_port_against_its_reference(capsys: Capture) -> None:
    assert main(["check", "--type", "llama", "--tiny", "--against", "llama+yarn:causal"]) == 1
    assert "Explained by: the model leaves out the scaling 'yarn' of the reference" in capsys.readouterr().out
    assert main(["check", "--type", "llama", "--tiny", "--against", "llama"]) == 0


def test_checks_and_a_reference_in_one_command(capsys: Capture, tmp_path: Path) -> None:
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


def test_the_checks_are_listed(capsys: Capture) -> None:
    assert main(["check", "--list"]) == 0
    out = capsys.readouterr().out
    assert "packing.gaps" in out
    assert "attention.flex" in out
    assert main(["check", "--list", "--only", "shift"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["shift", "catches:"]


def test_the_checks_of_a_group_are_listed_together(capsys: Capture, monkeypatch: Patch) -> None:
    """Also one that a user's own module registered, behind those of all other groups."""
    last = list(CHECKS)[-1]
    monkeypatch.setitem(CHECKS._entries, "cache.mine", replace(CHECKS[last], name="cache.mine"))
    assert main(["check", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    groups = [group for group, _ in groupby(name.partition(".")[0] for name in names)]
    assert sorted(groups) == sorted(set(groups))
    assert "cache.mine" in names and set(names) == set(CHECKS)


def test_an_outcome_is_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of somebody's model that begins with ``::`` would be a command of GitHub's pipelines."""
    _print_outcome("N/A", "own.check: first line\n::error file=a.py,line=1::boo")
    assert all(line.startswith(("N/A", " " * 10)) for line in capsys.readouterr().out.splitlines())
