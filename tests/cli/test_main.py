"""The command line as a whole: it starts at once, and every fault is one message and an exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from clockhands.cli import VERBS, main

HEAVY = ("torch", "numpy", "transformers", "matplotlib", "scipy")


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "clockhands: there is no command 'trian'; did you mean 'train'?\n"
