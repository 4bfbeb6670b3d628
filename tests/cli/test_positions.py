"""Options of position, for models of anybody: what the commands print, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clockhands.cli import main
from tests.runs.tiny import LENGTH, save_model

TEXT = "The clock has many hands, and each turns at its own speed. " * 20


@pytest.fixture
def llama(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text(TEXT)
    return str(save_model(tmp_path / "llama", "llama"))


def test_a_foreign_model_is_evaluated_at_multiples_of_its_length(
    llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", llama, "--text", str(tmp_path / "book.txt"), "--length", "1x,2x", "--json"]
    assert main(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in plain] == [LENGTH, 2 * LENGTH]
    assert main([*words, "--position.spectrum", "yarn", "--factor", "4"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert changed[1]["scores"][0]["value"] != plain[1]["scores"][0]["value"]
    assert main([*words, "--stride", "8", "--batch", "2", "--weights", "streamed", "--dtype", "float64"]) == 0
    slid = json.loads(capsys.readouterr().out)
    assert "stride:8" in slid[0]["scores"][1]["signature"]


def test_a_foreign_model_continues_a_prompt(llama: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", llama, "--prompt", "The", "--tokens", "5", "--temperature", "0"]) == 0
    plain = capsys.readouterr().out
    assert plain.startswith("The") and len(plain.strip()) > 3
    scaled = ["--set", "position.base=100", "--max-prompt", "50"]
    assert main(["generate", llama, "--prompt", "The clock " * 9, "--tokens", "5", "--temperature", "0", *scaled]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "LLAMA"], "is no run, so it has no corpus of its own; give --text FILE"),
        (["evaluate", "LLAMA", "--text", "book.txt", "--beam", "3"], "--beam is for translations"),
        (["evaluate", "LLAMA", "--text", "book.txt", "--position.spectrum", "yarn"], "needs --factor"),
        (["evaluate", "LLAMA", "--text", "book.txt", "--set", "position.fraction=0.5"], "fraction"),
        (["evaluate", "LLAMA", "--text", "book.txt", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["evaluate", "LLAMA", "--text", "book.txt", "--length", "9000"], "less than one window of length=9000"),
        (["evaluate", "LLAMA", "--unit", "line"], "--unit says how the files of --text are divided into documents"),
        (["generate", "LLAMA", "--set", "base=3"], "write position.OPTION=VALUE"),
        (["generate", "LLAMA", "--top-p", "0"], "top_p is 0.0; it is a share of the probability, from 1e-09 to 1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    words: list[str], message: str, llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([llama if word == "LLAMA" else word for word in words]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and message in said[0]
