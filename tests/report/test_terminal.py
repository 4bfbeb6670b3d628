"""The verdicts in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from clockhands.report import show
from tests.report.demo import EVIL, RUN


def test_terminal_prints_symbols_and_reads_no_markup() -> None:
    out = io.StringIO()
    show(RUN, Console(file=out, width=100))
    text = out.getvalue()
    assert "\x1b" not in text
    assert " ✓ One?" in text and " ✕ Two?" in text and " – Three? There is none." in text
    assert "[bold]Two[/bold] " + EVIL in text
    assert text.index("Three?") > text.index("Two?")
    assert "✓ 1 good   ✕ 1 bad   – 1 not applicable" in text


def test_terminal_colours_where_there_is_a_terminal() -> None:
    out = io.StringIO()
    show(RUN, Console(file=out, width=100, force_terminal=True, color_system="standard"))
    assert "\x1b[1;32m" in out.getvalue()
