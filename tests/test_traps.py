"""The page of traps and the tests name the same ones, so that neither can lose one."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "traps.md"


def rows() -> dict[int, str]:
    """What the page says of each trap."""
    found = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text("utf8"), flags=re.MULTILINE)
    return {int(number): text for number, text in found}


def named() -> dict[int, list[str]]:
    """The tests that are named after each trap."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, number in re.findall(r"^def (test_trap_(\d\d)_\w+)", path.read_text("utf8"), flags=re.MULTILINE):
            found.setdefault(int(number), []).append(name)
    return found


def test_the_page_numbers_forty_one_traps() -> None:
    assert list(rows()) == list(range(1, 42))


def test_every_trap_has_a_test_or_a_reason() -> None:
    excused = {number for number, text in rows().items() if "*not here*" in text}
    assert set(named()) == set(rows()) - excused, "a trap has no test, or a test is named after no trap"
