"""One browser for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.chromium import Browser, open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened
