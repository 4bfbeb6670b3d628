"""Keeping a folder for one process: two that write into the same run or comparison would destroy each other's work."""

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

from clockhands.errors import BusyError, DataError

LOCK = ".lock"
WAIT = 1.0
"""Seconds to wait for the holder: a process that is just ending is not a reason to refuse."""

_held: set[tuple[int, int, str]] = set()
"""Process, thread and folder: who holds a folder already may enter it again, as the tour does with its own run."""


@contextmanager
def hold(folder: Path, *, wait: float = WAIT) -> Iterator[None]:
    """Keep a folder for this thread inside the context; the folder is made if it is not there.

    The operating system frees the lock when the process ends in whatever way, so that nothing is to be cleaned up after
    ``kill -9``. A folder that was made here and stayed empty is removed again.
    Raises BusyError, which names the holder, and DataError without the right to write.
    """
    made = _make(folder)
    key = (os.getpid(), threading.get_ident(), os.path.realpath(folder))
    if key in _held:
        yield
        return
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=wait)
    try:
        lock.acquire()
    except Timeout as fault:
        raise BusyError(
            f"{folder} is in use: {_holder(folder)}; wait until it ends, or choose another folder"
        ) from fault
    except OSError as fault:
        raise DataError(f"cannot write in {folder}: {fault.strerror or fault}") from fault
    _held.add(key)
    try:
        _sign(folder)
        yield
    finally:
        _held.discard(key)
        # Removed while it is still held: whoever opened it meanwhile finds it without a name, and tries anew.
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        lock.release()
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _make(folder: Path) -> bool:
    """Make the folder; whether it was not there."""
    try:
        made = not os.path.isdir(folder)  # noqa: PTH112 - unlike pathlib, False where the folder above may not be entered
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as fault:
        raise DataError(f"cannot make the folder {folder}: {getattr(fault, 'strerror', None) or fault}") from fault
    return made


def _sign(folder: Path) -> None:
    """Write who holds the folder into the lock, for the message that another process prints."""
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    content = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
    with contextlib.suppress(OSError):
        (folder / LOCK).write_text(json.dumps(content) + "\n", "utf8")


def _holder(folder: Path) -> str:
    try:
        found = json.loads((folder / LOCK).read_text("utf8"))
        return f"process {found['process']} on {found['host']} has written in it since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process writes in it"
