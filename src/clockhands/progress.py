"""Progress on standard error: what happens now, how much of it is done, and the time left."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from clockhands.streams import make_console

SentenceProgress: TypeAlias = Callable[[str], None]
"""A function that is called with one sentence about what happens now."""
CountProgress: TypeAlias = Callable[[str, int, int], None]
"""A function that is called with what is counted, how many of them are done, and how many there are."""
LINE_INTERVAL = 10.0
"""Seconds between two lines of progress where standard error is not a terminal."""


def print_sentence(sentence: str) -> None:
    """Print one sentence on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def ignore_sentence(sentence: str) -> None:
    """Do nothing: the ``SentenceProgress`` of a caller who wants none."""


def ignore_count(what: str, done: int, total: int) -> None:
    """Do nothing: the ``CountProgress`` of a caller who wants none."""


def describe_time_left(done: int, total: int, seconds: float) -> str:
    """Return how long the rest takes at the speed so far, such as ``3 min left``; empty if nothing is done yet.

    ``done`` of ``total`` took ``seconds``.
    """
    if done <= 0:
        return ""
    left = seconds * max(0, total - done) / done
    if left < 60:
        return f"{left:.0f} s left"
    if left < 3600:
        return f"{left / 60:.0f} min left"
    return f"{int(left // 3600)} h {int(left % 3600 // 60)} min left"


class ProgressCounter:
    """Shows counts with the time left: a bar on a terminal, elsewhere a line every ``LINE_INTERVAL`` seconds.

    Use it in ``with``; an instance is a ``CountProgress``.
    """

    def __init__(self, console: Console | None = None, interval: float = LINE_INTERVAL) -> None:
        self.console = console or make_console(errors=True)
        self.interval, self.what = interval, ""
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.started = self.last_line = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` are done; another ``what`` starts a new count."""
        now = time.monotonic()
        if what != self.what:
            self._close()
            self.what, self.started, self.last_line = what, now, now
        if self.console.is_terminal:
            self._draw(done, total)
        elif now - self.last_line >= self.interval:
            self.last_line = now
            left = describe_time_left(done, total, now - self.started)
            self.console.print(f"{what}: {done:,} of {total:,}{', ' if left else ''}{left}", highlight=False)

    def __enter__(self) -> ProgressCounter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _draw(self, done: int, total: int) -> None:
        if self.bar is None:
            columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.task = self.bar.add_task(self.what, total=total)
            self.bar.start()
        self.bar.update(self.task, completed=done, total=total)

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


@contextmanager
def quiet(library: str) -> Iterator[None]:
    """Inside, a library warns of nothing; what fails in the end is raised."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def quieten() -> None:
    """Let transformers print errors alone, and draw no bars, for the rest of the process, where it is imported."""
    if "transformers" in sys.modules:
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()


@contextmanager
def without_bars() -> Iterator[None]:
    """Inside, transformers draws no progress bar, such as the one for loading weights; afterwards as before."""
    from transformers.utils import logging as transformers_logging

    drawn = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            transformers_logging.enable_progress_bar()
