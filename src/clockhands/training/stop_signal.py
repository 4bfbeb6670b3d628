"""A flag that signals set, so that a training stops after a whole step and can be resumed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Stop"]


class Stop:
    """A flag that SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) set while a run trains.

    The run then ends after the current step, with a checkpoint. A second Ctrl-C stops at once, and loses what was
    trained since the last checkpoint. A second SIGHUP does not: when a terminal is closed, both the system and the
    shell send one.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.terminals: list[int] = []

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Let signals set the flag inside this context; outside the main thread, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        before = {signal_number: signal.signal(signal_number, self._handle) for signal_number in _list_signals()}
        try:
            yield
        finally:
            for signal_number, handler in before.items():
                signal.signal(signal_number, handler)

    def _handle(self, signal_number: int, _: Any) -> None:
        """Set the flag; raise KeyboardInterrupt at the second SIGINT or SIGTERM."""
        # A write to a terminal that was closed would raise an error, and the run would end without a checkpoint.
        for descriptor in [descriptor for descriptor in self.terminals if not os.isatty(descriptor)]:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if self.is_set and signal_number in (signal.SIGINT, signal.SIGTERM):
            raise KeyboardInterrupt
        self.is_set = True


def _list_signals() -> list[signal.Signals]:
    """Return the signals that stop a run after its step; under ``nohup`` the end of the terminal is not one of them."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers
