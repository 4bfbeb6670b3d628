"""Standard output and errors of the command line: foreign text cannot steer a terminal, or stop a command.

Names of checkpoints, tokens and columns come from anybody. What they hold of control characters becomes signs here, at
the edge, and what a stream cannot encode is escaped as JSON escapes it, so that output in JSON stays JSON.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = {code: chr(0x2400 + code) for code in range(32)} | {127: "␡", 0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_CONTROL |= dict.fromkeys((*range(128, 160), *range(55296, 57344)), "�")
"""A visible sign for each control character and each broken surrogate."""
_LINES = {code: sign for code, sign in _CONTROL.items() if code != 10}
"""The same without the line break, which stays one."""
_TERMINAL = {code: sign for code, sign in _LINES.items() if code != 9 and not 55296 <= code < 57344}
"""What a terminal obeys: neither tabs nor surrogates, which are escaped where they are encoded."""


def replace_controls(text: object, *, lines: bool = False) -> str:
    """Replace control characters and broken surrogates by signs, so that XML and UTF-8 can hold the whole text.

    ``lines`` keeps line breaks; without it they too become a sign, as token text needs.
    """
    return str(text).translate(_LINES if lines else _CONTROL)


def quote_code(text: str) -> str:
    """Return text as a code span of Markdown, which ends at no backtick inside: its fence has one more in a row."""
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


class _Harmless:
    """A stream of text that shows the control characters of what is written as signs; ``raw`` obeys them."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self.raw.write(text.translate(_TERMINAL))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextmanager
def open_streams() -> Iterator[None]:
    """Inside, what is printed to standard output is harmless, and no stream is closed or lacks a character.

    Errors are left as they are, for the bars that libraries draw there; messages of ours pass ``replace_controls``.

    A stream that was closed (``>&-``) leads nowhere: its number would else be that of the next file that is opened.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
    codecs.register_error("json", _escape)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="json")
    sys.stdout = _Harmless(sys.stdout)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _escape(fault: UnicodeError) -> tuple[str, int]:
    """Escape what cannot be encoded as JSON does: ``\\u00fc``."""
    assert isinstance(fault, UnicodeEncodeError)
    return json.dumps(fault.object[fault.start : fault.end])[1:-1], fault.end


def get_raw_output() -> TextIO:
    """Return where translations and continuations go: standard output, as it is where it is no terminal."""
    stream: TextIO = sys.stdout
    return stream if stream.isatty() else getattr(stream, "raw", stream)


def make_console(*, errors: bool = False) -> Console:
    """Return a console of rich on standard output or ``errors``, whose own colours and movements are obeyed."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    return Console(file=getattr(stream, "raw", stream))
