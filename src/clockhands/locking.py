"""A lock on a folder: two processes that write into the same run or comparison would destroy each other's work."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from clockhands.errors import BusyError, DataError
from clockhands.reading import read_json

__all__ = ["LOCK", "WAIT", "lock_folder"]

LOCK = ".lock"
"""The name of the file in a folder that is locked."""
WAIT = 1.0
"""Seconds to wait for the holder: a process that is just ending is not a reason to refuse."""

_held: set[tuple[int, int, str]] = set()
"""Process, thread and folder of each lock: its holder may lock the folder again, as the tour does with its own run."""


@contextmanager
def lock_folder(folder: Path, *, wait: float = WAIT) -> Iterator[None]:
    """Lock a folder for this thread inside the context; make the folder if it does not exist.

    The operating system frees the lock when the process ends, in whatever way, so that nothing has to be cleaned up
    after ``kill -9``. A folder that was made here and stayed empty is removed again.

    Args:
        wait: how many seconds to wait for another holder.

    Raises BusyError, which names the holder, and DataError without the right to write.
    """
    made = _make_folder(folder)
    key = (os.getpid(), threading.get_ident(), os.path.realpath(folder))
    if key in _held:
        yield
        return
    lock = FileLock(folder / LOCK, timeout=wait)
    try:
        lock.acquire()
    except Timeout as fault:
        raise BusyError(
            f"{folder} is in use: {_describe_holder(folder)}; wait until it ends, or choose another folder"
        ) from fault
    except OSError as fault:
        raise DataError(f"cannot write in {folder}: {fault.strerror or fault}") from fault
    _held.add(key)
    try:
        _record_holder(folder)
        yield
    finally:
        _held.discard(key)
        # The file is removed before the lock is released: a process that opened it meanwhile locks a file that has no
        # name any more, notices that, and opens a new one.
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        lock.release()
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _make_folder(folder: Path) -> bool:
    """Make the folder, and return whether it was not there. Raises DataError if it cannot be made."""
    try:
        made = not os.path.isdir(folder)  # noqa: PTH112 - unlike pathlib, False where the folder above may not be entered
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as fault:
        raise DataError(f"cannot make the folder {folder}: {getattr(fault, 'strerror', None) or fault}") from fault
    return made


def _record_holder(folder: Path) -> None:
    """Write who holds the folder into the lock, for the message that another process prints."""
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    content = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
    with contextlib.suppress(OSError):
        (folder / LOCK).write_text(json.dumps(content) + "\n", "utf8")


def _describe_holder(folder: Path) -> str:
    """Return who holds the lock of a folder, as the holder recorded it."""
    try:
        holder = read_json(folder / LOCK, DataError)
        return f"process {holder['process']} on {holder['host']} has written in it since {holder['since']}"
    except (DataError, KeyError):
        return "another process writes in it"
