"""What a person sees on standard error while something takes long: what happens now, how far it is, the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeAlias

Say: TypeAlias = Callable[[str], None]
"""Takes one sentence about what happens now."""
Count: TypeAlias = Callable[[str, int, int], None]
"""Takes what is counted, how many are done and how many there are."""
EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


def say(sentence: str) -> None:
    """Print one sentence on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def say_nothing(sentence: str) -> None:
    """Stand in for ``say`` where nobody watches."""


def count_nothing(what: str, done: int, total: int) -> None:
    """Stand in for ``Counter`` where nobody watches."""


def time_left(done: int, total: int, seconds: float) -> str:
    """Return the time that the rest takes at the speed so far, such as ``3 min left``; empty if none is done."""
    if done <= 0:
        return ""
    left = seconds * max(0, total - done) / done
    if left < 60:
        return f"{left:.0f} s left"
    if left < 3600:
        return f"{left / 60:.0f} min left"
    return f"{int(left // 3600)} h {int(left % 3600 // 60)} min left"


class Counter:
    """Shows counts with the time left: a bar on a terminal, elsewhere a line every ``EVERY`` seconds.

    Use it in ``with``; an instance is a ``Count``.
    """

    def __init__(self, console: Any = None, every: float = EVERY) -> None:
        from rich.console import Console

        self.console = console or Console(stderr=True)
        self.every, self.what = every, ""
        self.bar: Any = None
        self.task: Any = None
        self.begun = self.told = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take in one count."""
        now = time.monotonic()
        if what != self.what:
            self._close()
            self.what, self.begun, self.told = what, now, now
        if self.console.is_terminal:
            self._draw(done, total)
        elif now - self.told >= self.every:
            self.told = now
            left = time_left(done, total, now - self.begun)
            self.console.print(f"{what}: {done:,} of {total:,}{', ' if left else ''}{left}", highlight=False)

    def __enter__(self) -> Counter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _draw(self, done: int, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
