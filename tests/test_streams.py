"""Foreign text cannot steer a terminal; no terminal, and no closed stream, ends a command in a traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from clockhands.cli import main
from clockhands.streams import get_raw_output, make_console, open_streams, replace_controls

EVIL = "a\x1b[31mred\x1b]0;title\x07\r\x9b2Kb\x7f"


def test_control_characters_become_signs_and_nothing_else_does() -> None:
    assert replace_controls(EVIL) == "a␛[31mred␛]0;title␇␍�2Kb␡"
    assert replace_controls("für\n日本\t👋", lines=True) == "für\n日本␉👋"


def test_what_is_printed_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with open_streams():
        print(f"{EVIL}\tnext\nline")
        make_console().print("[bold]x[/bold]")
    assert sys.stdout is before
    assert capsys.readouterr().out == "a␛[31mred␛]0;title␇␍�2Kb␡\tnext\nline\nx\n"


def test_a_message_about_a_foreign_name_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"./{EVIL}"]) == 1
    message = capsys.readouterr().err
    assert "a␛[31mred␛]0;title␇␍" in message and not any(sign in message for sign in "\x1b\x07\r\x9b\x7f")


def test_translations_go_to_a_file_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with open_streams():
        print("a\x85b\x1bc", file=get_raw_output())
    assert capsys.readouterr().out == "a\x85b\x1bc\n"


def test_what_a_stream_cannot_encode_is_escaped_as_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "ascii", write_through=True))
    with open_streams():
        print(json.dumps({"text": "für 👋"}, ensure_ascii=False))
        print("\udcff")
    lines = out.getvalue().decode("ascii").splitlines()
    assert json.loads(lines[0]) == {"text": "für 👋"} and lines[1] == "\\udcff"


@pytest.mark.parametrize(
    ("closed", "command", "code"),
    [
        ("<&-", "schemes rope", 0), (">&-", "schemes rope", 0), ("2>&-", "schemes nothing", 2),
        ("<&- >&- 2>&-", "schemes rope", 0), ("<&- >&- 2>&-", "schemes nothing", 2),
    ],
)  # fmt: skip
def test_closed_streams(closed: str, command: str, code: int) -> None:
    words = f"exec '{sys.executable}' -m clockhands {command} {closed}"
    done = subprocess.run(words, shell=True, capture_output=True, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "variables", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_a_terminal_of_ascii(variables: dict[str, str]) -> None:
    words = [sys.executable, "-m", "clockhands", "schemes", "rope"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, **variables})
    assert done.returncode == 0 and done.stdout.isascii() and rb"\u03b8" in done.stdout, done.stderr
