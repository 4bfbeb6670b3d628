"""One process at a time writes in a folder; who holds it is named, and whoever dies lets go."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clockhands.errors import BusyError, DataError
from clockhands.locking import LOCK, lock_folder

HOLDER = """
import sys, time
from pathlib import Path
from clockhands.locking import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


def in_a_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_a_second_process_is_refused_with_the_name_of_the_first_until_that_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path / "run") as child:
        named = (
            rf"{tmp_path}/run is in use: process {child.pid} on {re.escape(socket.gethostname())} has written in it "
        )
        with pytest.raises(
            BusyError, match=named + r"since 20\d\d-\d\d-\d\d .*; wait until it ends, or choose another"
        ):
            lock_folder(tmp_path / "run", wait=0.05).__enter__()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (tmp_path / "run" / LOCK).exists(), "nobody could remove it"
    with lock_folder(tmp_path / "run", wait=0.0):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["process"] == os.getpid()


def test_another_thread_is_refused_and_the_same_one_is_not(tmp_path: Path) -> None:
    found: list[str] = []

    def other() -> None:
        try:
            with lock_folder(tmp_path, wait=0.05):
                found.append("entered")
        except BusyError:
            found.append("refused")

    with lock_folder(tmp_path):
        with lock_folder(tmp_path / "." / "..", wait=0.0), lock_folder(tmp_path, wait=0.0):
            in_a_thread(other)
        in_a_thread(other)
    in_a_thread(other)
    assert found == ["refused", "refused", "entered"]


def test_nothing_stays_of_it(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "kept"):
        (tmp_path / "kept" / "file").touch()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["file"]
    with lock_folder(tmp_path / "unused"):
        pass
    assert not (tmp_path / "unused").exists()
    (tmp_path / "empty").mkdir()
    with lock_folder(tmp_path / "empty"):
        pass
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_lock_whose_words_are_lost_is_one_all_the_same(tmp_path: Path) -> None:
    with another_process(tmp_path):
        (tmp_path / LOCK).write_text("{")
        with pytest.raises(BusyError, match="is in use: another process writes in it; wait"):
            lock_folder(tmp_path, wait=0.0).__enter__()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/below", "nul\0"):
        with pytest.raises(DataError, match=f"cannot make the folder .*{place}: "):
            lock_folder(tmp_path / place).__enter__()
