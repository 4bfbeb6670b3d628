"""``generate`` as a person types it."""

from __future__ import annotations

import json
from functools import partial

from clockhands.cli import main
from clockhands.progress import ProgressCounter
from clockhands.runs import Run
from tests.cli.conftest import Capture, Patch
from tests.generation.conftest import writer

__all__ = ["writer"]


def test_generate_prints_prompt_and_continuation(writer: Run, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("clockhands.progress.ProgressCounter", partial(ProgressCounter, interval=0.0))
    assert main(["generate", str(writer.path), "--prompt", "the cat", "--tokens", "4", "--temperature", "0"]) == 0
    out, err = capsys.readouterr()
    assert out == "the cat sat\n"
    assert "tokens: 1 of 4, " in err


def test_a_seed_samples_the_same_again_as_json(writer: Run, capsys: Capture) -> None:
    command = ["generate", str(writer.path), "--prompt", "the ", "--tokens", "12", "--json", "--temperature", "3"]
    printed = []
    for seed in ("1", "1", "2"):
        assert main([*command, "--seed", seed, "--samples", "2"]) == 0
        printed.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert printed[0] == printed[1] != printed[2]
    assert [row["prompt"] for row in printed[0]] == ["the ", "the "]
    assert all(row["text"].startswith("the ") and len(row["text"]) > 4 for row in printed[0])
    assert printed[0][0] != printed[0][1], "two samples"


def test_a_long_prompt_is_printed_whole_and_its_end_is_read(writer: Run, capsys: Capture) -> None:
    words = ["--prompt", "zzzzzz the cat sat", "--max-prompt", "11", "--tokens", "6", "--temperature", "0"]
    assert main(["generate", str(writer.path), *words]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("zzzzzz the cat sat on")
    assert err == "clockhands: warning: the prompt has 18 tokens, and the last 11 are read; raise max_prompt for more\n"
