"""``translate`` as a person types it: sentences, files and standard input."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clockhands.cli import main
from clockhands.generation import ENGINES, Search
from clockhands.progress import ProgressCounter
from clockhands.runs import Run
from tests.cli.conftest import Capture, Patch
from tests.generation.conftest import translator

__all__ = ["translator"]


def test_the_help_says_what_every_engine_is_good_for(capsys: Capture) -> None:
    """It is typed, for no engine is imported to print it."""
    with pytest.raises(SystemExit):
        main(["translate", "--help"])
    said = " ".join(capsys.readouterr().out.partition("--engine NAME  ")[2].partition("--compute-type TYPE")[0].split())
    unsaid = [name for name in ENGINES if not re.search(rf"\b{name} \(.+?\)", said)]
    assert not unsaid, f"the text of --engine in src/clockhands/cli/common.py does not say what {unsaid} are good for"


def test_sentences_on_the_command_line(translator: Run, capsys: Capture) -> None:
    assert main(["translate", str(translator.path), "Tom saw Anna", "Anna saw Tom"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_file_in_and_a_file_out(translator: Run, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("clockhands.progress.ProgressCounter", partial(ProgressCounter, interval=0.0))
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"Tom saw Anna\n\nAnna saw Tom\n"))
    command = ["translate", str(translator.path), "--input", str(tmp_path / "in.gz"), "--output", str(tmp_path / "out")]
    assert main(command) == 0
    lines = (tmp_path / "out").read_text(encoding="utf8").splitlines()
    assert len(lines) == 3 and lines[1] == ""
    assert "sentences: 2 of 3, " in capsys.readouterr().err
    assert main(command) == 2
    assert "out exists; name another file, or pass --overwrite" in capsys.readouterr().err


def test_a_file_grows_while_it_is_translated_and_keeps_its_lines_when_stopped(
    translator: Run, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """It ends early by a byte that is not UTF-8 in the input, then by Ctrl-C."""
    (tmp_path / "in").write_bytes(b"Tom saw Anna\n" * 800 + b"\xff\n")
    part = tmp_path / "out.part"
    command = ["translate", str(translator.path), "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(command) == 1
    kept = part.read_text("utf8").splitlines()
    said = capsys.readouterr().err
    assert "in, line 801: byte 10,401 of the file (0xff) is not utf-8; convert the file" in said
    assert said.endswith(f"; the first {len(kept)} translations are in {part}\n")
    assert len(set(kept)) == 1 and len(kept) >= 64
    assert main(command) == 2
    assert f"{part} exists (what an interrupted translation left); name another file" in capsys.readouterr().err
    module = sys.modules["clockhands.generation.translate"]
    first = iter([module.encode_texts])

    def stopped(*given: Any) -> Any:
        for encode in first:
            return encode(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "encode_texts", stopped)
    assert main([*command, "--overwrite", "--batch", "2"]) == 130
    assert capsys.readouterr().err == f"clockhands: stopped; the first 2 translations are in {part}\n"
    assert not (tmp_path / "out").exists()


def test_standard_input_as_json(translator: Run, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Tom saw Anna\nbad \xff byte\n"), encoding="utf8"))
    assert main(["translate", str(translator.path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == ["Tom saw Anna", "bad \ufffd byte"]
    assert all(row["score"] < 0 for row in rows)


def test_attention_is_drawn_but_only_once(translator: Run, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    command = ["translate", str(translator.path), "Tom saw Anna", "--attention", str(tmp_path / "a.svg")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "<svg" in (tmp_path / "a.svg").read_text(encoding="utf8")
    assert len(out.splitlines()) == 1 and err == f"drew {tmp_path / 'a.svg'}\n"
    assert main(command) == 2
    # More than one is refused before any is translated.
    monkeypatch.setattr(Search, "make_engine", None)
    assert main([*command[:3], "Anna saw Tom", *command[3:], "--overwrite"]) == 2
    assert "--attention draws one sentence, and 2 were given" in capsys.readouterr().err


def test_only_line_feeds_end_a_sentence(translator: Run, tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    content = "Tom saw\rAnna\r\nAnna\x0bsaw\u2028Tom\x85now\n".encode()
    wanted = ["Tom saw\rAnna", "Anna\x0bsaw\u2028Tom\x85now"]
    (tmp_path / "in.txt").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf8"))
    for given in ([], ["--input", str(tmp_path / "in.txt")]):
        assert main(["translate", str(translator.path), "--json", *given]) == 0
        printed = capsys.readouterr().out.split("\n")[:-1]
        assert [json.loads(line)["source"] for line in printed] == wanted
