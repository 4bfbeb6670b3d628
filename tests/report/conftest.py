"""One browser for the tests of a file, and one page with all figures for the tests of all files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clockhands.report import write
from tests.report.chromium import Browser, open_browser
from tests.report.demo import demo
from tests.shared import make_once


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the demonstration, every figure drawn, with its files beside it."""
    return make_once(tmp_path_factory, "demo", lambda folder: write(demo(), folder)) / "index.html"
