"""The flag that signals set: after the first one a run ends by itself, the second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from clockhands.training.stop_signal import Stop

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP and no os.kill of this kind")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_flag_and_the_second_stops_at_once(number: signal.Signals) -> None:
    stop, before = Stop(), signal.getsignal(number)
    with stop.listen():
        assert not stop.is_set
        os.kill(os.getpid(), number)
        assert stop.is_set
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_closed_terminal_may_send_its_signal_twice() -> None:
    stop, before = Stop(), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with stop.listen():
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_under_nohup_the_end_of_the_terminal_is_ignored() -> None:
    stop, before = Stop(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop.listen():
            os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_leaves_the_signals_as_they_are() -> None:
    before, during = signal.getsignal(signal.SIGTERM), []

    def listen() -> None:
        with Stop().listen():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert during == [before]
