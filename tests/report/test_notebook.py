"""Findings inside a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

from clockhands.findings import Figure, Finding, Findings, Mark, Panel, Table
from clockhands.report import make_page
from tests.report.demo import EVIL

FIGURE = Figure((Panel((Mark("line", "a", (1, 2), (3.0, 4.0)),)),))
ONE = Finding("a.one", "One?", "One.", figure=FIGURE, table=Table.of(("k", "v"), [("x", 0.25)]), light="good")
TWO = Finding("two", "Two?", "[bold]Two[/bold] " + EVIL, light="bad")
SKIP = Finding("three", "Three?", "There is none.", light="skip")
RUN = Findings("A run", (ONE, TWO, SKIP), facts={"model": "m"})


def test_notebook_frames_the_whole_page() -> None:
    frames: list[dict[str, str | None]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            frames.append({"tag": tag, **dict(attrs)})

    Reader().feed(RUN._repr_html_())
    assert len(frames) == 1
    assert frames[0]["srcdoc"] == make_page(RUN, script=False)
    assert "allow-scripts" not in (frames[0]["sandbox"] or "")
