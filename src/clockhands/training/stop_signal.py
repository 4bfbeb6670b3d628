"""A flag that a signal raises, so that a training stops after a whole step and can be resumed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """A flag that Ctrl-C raises while a run trains (or SIGTERM, or SIGHUP when its terminal is closed); the run ends
    after its step, with a checkpoint.

    A second Ctrl-C stops at once, and loses what was trained since the last checkpoint. A second SIGHUP does not: when
    a terminal is closed, both the system and the shell send one.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.terminals: list[int] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Let signals raise the flag inside this context; only the main thread can listen."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        before = {number: signal.signal(number, self._hear) for number in _list_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _: Any) -> None:
        # Every write to a terminal that is gone would be an error, which would end the run unsaved.
        for descriptor in [descriptor for descriptor in self.terminals if not os.isatty(descriptor)]:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if self.is_set and number in (signal.SIGINT, signal.SIGTERM):
            raise KeyboardInterrupt
        self.is_set = True


def _list_signals() -> list[signal.Signals]:
    """Return the signals that stop a run after its step; under ``nohup`` the end of the terminal is not one of them."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
