"""What options take, on every command line: numbers, files, folders."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from pathlib import Path

import pytest

from clockhands.cli import VERBS, Parser, main
from clockhands.cli.common import check_file, parse_length, report_new_folder
from clockhands.cli.flags import declare, read_as
from clockhands.data.datasets import LONGEST
from clockhands.errors import UsageError
from clockhands.options import options_of
from tests.cli.conftest import Capture, Patch
from tests.runs.tiny import LENGTH, save_model

as_int, as_float = read_as(int), read_as(float)


def options(verb: str) -> list[argparse.Action]:
    parser = Parser()
    declare(parser, importlib.import_module(f"clockhands.cli.{verb}").Options)
    return parser._actions


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_takes_a_number_by_any_other_door(verb: str) -> None:
    assert {action.dest for action in options(verb) if action.type in (int, float)} == set()


NUMBERS = [(verb, action) for verb in VERBS for action in options(verb) if action.type in (as_int, as_float)]


@pytest.mark.parametrize(("verb", "action"), NUMBERS, ids=[f"{verb} {a.option_strings[0]}" for verb, a in NUMBERS])
def test_no_number_of_any_command_is_infinite_or_nan(verb: str, action: argparse.Action, capsys: Capture) -> None:
    for written in ("nan", "inf", "-1e400", "zwei", "9" * 5000):
        assert main([verb, "x", f"{action.option_strings[0]}={written}"]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith(f"clockhands: argument {action.option_strings[0]}: ") and printed.count("\n") == 1
        assert len(printed) < 250


def test_whole_numbers() -> None:
    assert [as_int(written) for written in ("7", "1e3", "-2", "2.0")] == [7, 1000, -2, 2]
    for written in ("1.5", "1e30", str(2**63), "9" * 5000):
        with pytest.raises(argparse.ArgumentTypeError):
            as_int(written)


def test_a_length_is_tokens_or_a_multiple_of_the_trained_one() -> None:
    lengths = [parse_length("--length", word, 64, "") for word in ("2x", " 1.5x", "16", "0.5x")]
    assert lengths == [128, 96, 16, 32] and parse_length("--length", "16", None, "") == 16
    with pytest.raises(UsageError, match="nobody knows"):
        parse_length("--length", "1x", None, "nobody knows")
    for written in ("far", "infx", "x", "1.5"):
        with pytest.raises(UsageError, match="neither a number of tokens nor a multiple like 2x"):
            parse_length("--length", written, 64, "")


def test_a_file_is_written_where_a_folder_is_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "there.svg").write_text("")
    check_file("--output", None, overwrite=False)
    check_file("--output", str(tmp_path / "new.svg"), overwrite=False, suffix=".svg")
    check_file("--output", str(tmp_path / "there.svg"), overwrite=True, suffix=".svg")
    for name, said in {
        "there.svg": "exists; name another file, or pass --overwrite",
        "no/new.svg": "there is no folder .*no; make it first",
        "new.png": "the format is SVG; name the file new.svg",
        "new": "the format is SVG; name the file new.svg",
        "": "the format is SVG",
    }.items():
        with pytest.raises(UsageError, match=said):
            check_file("--output", str(tmp_path / name), overwrite=False, suffix=".svg")
    with pytest.raises(UsageError, match="that is a folder; name a file in it"):
        check_file("--output", str(tmp_path), overwrite=True)


TOO_MANY = f"is 100000; {max(64, 4 * (os.cpu_count() or 1))} are the most that help"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("translate nowhere x --output no/out.txt", "make it first"),
        ("translate nowhere x --attention no/a.svg", "make it first"),
        ("translate nowhere x --attention a.png", "the format is SVG; name the file a.svg"),
        ("schemes rope --draw no/rope.svg", "make it first"),
        ("translate x y --threads 100000", TOO_MANY),
        ("train --corpus roles --threads 100000 --set training.max_steps=1 --out r", TOO_MANY),
        ("compare --corpus roles --vary position.scheme=none,rope --steps 1 --threads 100000 --out r", TOO_MANY),
        ("compare --corpus roles --vary position.scheme=none,rope --steps 1 --workers 100000 --out r", TOO_MANY),
        ("inspect x --threads 100000", TOO_MANY),
        ("translate x y --threads 0", "is 0; it must be 1 or more"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_opened(
    command: str, message: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_made_is_said(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    with report_new_folder("run"):
        Path("run").mkdir()
    with report_new_folder("quiet/run", quiet=True):
        Path("quiet/run").mkdir(parents=True)
    with report_new_folder("none/run"):
        pass
    assert capsys.readouterr().err == ""
    with report_new_folder("runs/run"):
        Path("runs/run").mkdir(parents=True)
    assert capsys.readouterr().err == "made the folder runs, which was not there\n"


def test_the_longest_text_is_the_same_everywhere() -> None:
    defaults = {
        name: option.default
        for verb in ("translate", "evaluate", "generate")
        for name, option in options_of(importlib.import_module(f"clockhands.cli.{verb}").Options).items()
    }
    assert defaults["max_source"] == defaults["max_prompt"] == LONGEST


TEXT = "The clock has many hands, and each turns at its own speed. " * 20


@pytest.fixture
def llama(tmp_path: Path) -> str:
    (tmp_path / "book.txt").write_text(TEXT)
    return str(save_model(tmp_path / "llama", "llama"))


def test_a_foreign_model_is_evaluated_at_multiples_of_its_length(llama: str, tmp_path: Path, capsys: Capture) -> None:
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
        (["generate", "LLAMA", "--top-p", "0"], "top_p is 0.0, but must be from 1e-09 to 1"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    words: list[str], message: str, llama: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([llama if word == "LLAMA" else word for word in words]) in (1, 2)
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and message in said[0]
