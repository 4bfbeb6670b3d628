"""The command line as a whole: it starts at once, and every fault is one message and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from clockhands.cli import NO_MEMORY, VERBS, main
from clockhands.errors import ClockhandsWarning
from tests.cli.conftest import Capture, Patch

HEAVY = ("torch", "numpy", "transformers", "matplotlib", "scipy")


def test_help_names_every_verb(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {verb} " in printed for verb in VERBS)


def test_starting_imports_nothing_heavy() -> None:
    code = f"import sys, clockhands.cli as c; c.main(['--help']); print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_imports_no_torch_and_shows_examples(verb: str) -> None:
    code = f"""
import sys, clockhands.cli as c
try: c.main([{verb!r}, '--help'])
except SystemExit as done: assert done.code == 0
print([m for m in {HEAVY} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("[]")
    assert f"examples:\n  clockhands {verb}" in done.stdout


def test_an_unknown_command_is_named(capsys: Capture) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "clockhands: there is no command 'trian'; did you mean 'train'?\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("translate runs/x --beem 4 zwei", "there is no option '--beem'; did you mean '--beam'?"),
        ("translate runs/x --beam four", "argument --beam: the value is 'four', but must be a whole number"),
        ("translate", "the following arguments are required: run"),
        ("train a.toml b.toml", "unexpected argument 'b.toml'"),
    ],
)
def test_a_wrong_option_is_one_sentence(command: str, said: str, capsys: Capture) -> None:
    verb = command.split()[0]
    assert main(command.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("clockhands: ")
    assert said in printed.err
    assert printed.err.endswith(f"(`clockhands {verb} --help` explains)\n")
    assert printed.err.count("\n") == 1


def test_options_may_stand_between_the_words(capsys: Capture) -> None:
    assert main(["translate", "runs/nowhere", "--beam", "4", "zwei"]) == 1
    assert "runs/nowhere is not a finished run" in capsys.readouterr().err


def test_a_folder_that_may_not_be_entered_is_one_sentence(capsys: Capture) -> None:
    mine = os.geteuid()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0)
        if mine == 0:
            os.seteuid(65534)  # The superuser may enter everywhere, so it is nobody who asks.
        try:
            assert main(["translate", f"{folder}/run", "zwei"]) == 1
        finally:
            os.seteuid(mine)
            Path(folder).chmod(0o700)
    assert capsys.readouterr().err == f"clockhands: {folder}/run: Permission denied\n"


def run_without_reader(*words: str) -> tuple[int, str]:
    """Run Python with a standard output that nobody reads: the exit code, and what stands in standard error."""
    reading, writing = os.pipe()
    os.close(reading)
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    asked = [sys.executable, *words]
    done = subprocess.run(asked, stdout=writing, stderr=subprocess.PIPE, env=buffered, text=True, check=False)
    os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", ["--help", "--version"])
def test_a_reader_that_has_gone_is_no_error(command: str) -> None:
    """What `| head -1` does, and what a reader does that reads nothing."""
    assert run_without_reader("-m", "clockhands", command) == (0, "")


def test_a_reader_of_much_that_has_gone_is_no_error() -> None:
    """Each command is a process that ends as its own would; what takes long to import was imported before they part."""
    commands = ["schemes", "schemes rope", "schemes --json"]
    code = """
import os, runpy, sys
import torch
for command in sys.argv[1:]:
    if os.fork() == 0:
        sys.argv = ["clockhands", *command.split()]
        runpy.run_module("clockhands", run_name="__main__", alter_sys=True)
    print(command, os.waitstatus_to_exitcode(os.wait()[1]), file=sys.stderr)
"""
    assert run_without_reader("-c", code, *commands) == (0, "".join(f"{command} 0\n" for command in commands))


def test_an_argument_that_is_not_utf8_is_one_message() -> None:
    """As the operating system hands it over: what was no UTF-8 became half a surrogate."""
    done = subprocess.run(
        [sys.executable, "-m", "clockhands", "translate", b"caf\xe9"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == b"clockhands: argument 2, 'caf\\udce9', is not UTF-8; write it so, or rename the file\n"


@pytest.mark.parametrize("verb", VERBS)
def test_nul_in_an_argument_is_one_message(verb: str, capsys: Capture) -> None:
    assert main([verb, "--out", "a\0b"]) == 2
    assert capsys.readouterr().err == "clockhands: argument 3, 'a\\x00b', holds the character NUL, which no name has\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (MemoryError(), NO_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), NO_MEMORY),
        (RecursionError(), "the input nests lists or tables too deeply to be read"),
    ],
)
def test_what_no_memory_holds_is_one_message(fault: Exception, said: str, monkeypatch: Patch, capsys: Capture) -> None:
    def fail(_: object) -> int:
        raise fault

    monkeypatch.setattr("clockhands.cli.tour.run", fail)
    assert main(["tour"]) == 1
    assert capsys.readouterr().err == f"clockhands: {said}\n"


def test_memory_that_torch_lacks_is_one_message_and_other_faults_are_not(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("clockhands.cli.tour.run", lambda _: torch.empty(2**50))
    assert main(["tour"]) == 1
    assert capsys.readouterr().err == f"clockhands: {NO_MEMORY}\n"
    monkeypatch.setattr("clockhands.cli.tour.run", lambda _: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        main(["tour"])


def test_a_warning_of_ours_is_one_line(monkeypatch: Patch, capsys: Capture) -> None:
    def warn(_: object) -> int:
        for _ in range(2):
            warnings.warn("2 texts were cut", ClockhandsWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("clockhands.cli.tour.run", warn)
    assert main(["tour"]) == 0
    assert capsys.readouterr().err == "clockhands: warning: 2 texts were cut\n" * 2


def test_a_word_of_many_thousand_characters_is_cut_in_the_message(capsys: Capture) -> None:
    assert main(["9" * 20_000]) == 2
    message = capsys.readouterr().err
    assert len(message) < 1_200
    assert "there is no command '999" in message
