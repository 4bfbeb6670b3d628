"""What is said while something takes long: where there is no terminal a line now and then, with the time left."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from transformers.utils import logging

from clockhands import progress
from clockhands.checking import examine
from clockhands.models.door import open_subject
from clockhands.progress import ProgressCounter, describe_time_left, without_bars
from clockhands.runs import Run, open_run
from tests.generation.conftest import translator

__all__ = ["translator"]


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
    assert out.getvalue() == "translating: 250 of 1,000, 30 s left\ntranslating: 500 of 1,000, 20 s left\n"


def test_on_a_terminal_there_is_a_bar_and_nothing_of_it_stays() -> None:
    out = io.StringIO()
    with ProgressCounter(Console(file=out, force_terminal=True, width=100)) as count:
        for done in range(3):
            count("translating", done, 2)
    assert "translating" in out.getvalue() and "2/2" in out.getvalue()
    assert out.getvalue().rstrip("\r").endswith("\x1b[2K")


@pytest.fixture
def bars() -> Iterator[None]:
    """Bars as transformers draws them unasked."""
    drawn = logging.is_progress_bar_enabled()
    logging.enable_progress_bar()
    yield
    if not drawn:
        logging.disable_progress_bar()


@pytest.mark.usefixtures("bars")
@pytest.mark.parametrize(
    "opens",
    [
        lambda path: open_run(path),
        lambda path: open_subject(path, side="encoder"),
        lambda path: examine(path, only=["load.round_trip", "precision.load"]),
    ],
    ids=["generation", "inspection", "checking"],
)
def test_opening_a_model_draws_no_bar(
    opens: Callable[[str], object], translator: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    opens(str(translator.path))
    assert "%|" not in "".join(capsys.readouterr())
    assert logging.is_progress_bar_enabled()


def test_bars_that_were_off_stay_off() -> None:
    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    with without_bars():
        pass
    assert not logging.is_progress_bar_enabled()
    if drawn:
        logging.enable_progress_bar()
