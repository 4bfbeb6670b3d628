"""The page in a real browser: it opens clean, shows its figures, and nothing sticks out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clockhands.findings import Findings
from clockhands.report import put_side_by_side, write
from tests.report.chromium import Browser, find
from tests.report.demo import EVIL, demo

BINARY = find()
pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium, chromium-browser or google-chrome on the path")
STICKS_OUT = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.plot, .table, pre')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BINARY is not None
    with Browser(BINARY) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("report")
    both = put_side_by_side(model("first"), model("second"))
    return {"one": write(demo(), folder / "one")[0], "two": write(both, folder / "two")[0]}


def model(name: str) -> Findings:
    return replace(demo(name), facts={**demo().facts, "model": name})


@pytest.mark.parametrize("which", ["one", "two"])
@pytest.mark.parametrize("width", [400, 1400])
def test_opens_clean_and_fits(browser: Browser, pages: dict[str, Path], which: str, width: int) -> None:
    browser.open(pages[which], width, dark=width == 400)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(STICKS_OUT) == []
    assert browser.faults() == []
    requests = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert requests[0] == pages[which].as_uri()
    assert all(url.startswith("data:") for url in requests[1:]), requests


def test_figures_are_there_and_have_size(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 1400)
    sizes = browser.evaluate(
        "[...document.querySelectorAll('.plot > svg')].map(s => s.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) == sum(item.figure is not None for item in demo())
    assert all(wide > 500 and tall > 200 for wide, tall in sizes)
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.plot image')].every(i => i.getBoundingClientRect().width > 3)"
    )
    assert drawn


def test_hostile_token_stays_text(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"], 1400)
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 0
    assert EVIL in browser.evaluate("document.body.textContent")


def test_a_point_under_the_cursor_tells_its_value(browser: Browser, pages: dict[str, Path]) -> None:
    """What lies on top where the first bar is drawn is the element whose title holds that bar's value."""
    browser.open(pages["one"], 1400)
    title = browser.evaluate(
        """(() => { const t = document.querySelector('#loudness-share-svg .hover > rect'); t.scrollIntoView();
        const box = t.getBoundingClientRect();
        const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return top.querySelector('title').textContent })()"""
    )
    assert title == "share of the input: 0.612 [0.59, 0.63], words"


def test_dark_screens_get_light_ink(browser: Browser, pages: dict[str, Path]) -> None:
    """Text of page and figure keeps a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3) in both schemes."""
    script = """(() => { const colour = (e, key) => getComputedStyle(e)[key].match(/\\d+/g).slice(0, 3).map(Number);
        return [colour(document.body, 'backgroundColor'),
          ...[...document.querySelectorAll('.verdict, .beside, figcaption, .contents a')].map(e => colour(e, 'color')),
          ...[...document.querySelectorAll('#survival-probe-svg text')].map(e => colour(e, 'fill'))] })()"""
    for dark in (False, True):
        browser.open(pages["one"], 1400, dark=dark)
        paper, *inks = browser.evaluate(script)
        assert (luminance(paper) < 0.1) == dark
        assert min(contrast(paper, ink) for ink in inks) >= 4.5


def luminance(colour: list[float]) -> float:
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[float], other: list[float]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
