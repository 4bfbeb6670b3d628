"""What is said while something takes long: where there is no terminal a line now and then, with the time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from clockhands import progress
from clockhands.progress import ProgressCounter, describe_time_left


@pytest.mark.parametrize(
    ("done", "total", "seconds", "said"),
    [
        (0, 10, 5.0, ""),
        (5, 10, 20.0, "20 s left"),
        (10, 10, 20.0, "0 s left"),
        (1, 4, 60.0, "3 min left"),
        (1, 2, 3599.0, "60 min left"),
        (1, 2, 3600.0, "1 h 0 min left"),
        (1, 11, 750.0, "2 h 5 min left"),
    ],
)
def test_the_time_left_is_that_of_the_speed_so_far(done: int, total: int, seconds: float, said: str) -> None:
    assert describe_time_left(done, total, seconds) == said


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 5.0, 10.0, 15.0, 20.0, 40.0, 45.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    out = io.StringIO()
    with ProgressCounter(Console(file=out, width=100), interval=10.0) as count:
        for done in (0, 100, 250, 300, 500):
            count("translating", done, 1000)
        for done in (0, 1):
            count("measuring the loss", done, 2)
    assert out.getvalue().splitlines() == [
        "translating: 250 of 1,000, 30 s left",
        "translating: 500 of 1,000, 20 s left",
    ]


def test_on_a_terminal_there_is_a_bar_and_nothing_of_it_stays() -> None:
    out = io.StringIO()
    with ProgressCounter(Console(file=out, force_terminal=True, width=100)) as count:
        for done in range(3):
            count("translating", done, 2)
    assert "translating" in out.getvalue() and "2/2" in out.getvalue()
    assert out.getvalue().rstrip("\r").endswith("\x1b[2K")
