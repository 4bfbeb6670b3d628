"""Write files so that nobody sees half of one: under a temporary name, then renamed.

Written files have the permissions that the umask gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from clockhands.errors import BusyError, DataError

UNFINISHED = ".writing"
"""The end of a file's name while it is written."""
PART = ".part"
"""The end of a growing file's name until it is complete (``open_growing``)."""


def find_recipe(path: str | Path) -> Path:
    """Return the path of a recipe or plan; ``recipes/NAME.toml`` is found from any folder.

    The path of a file that exists is returned as it is. Any other path of this form is that of a recipe that comes with
    Clockhands: inside the installed package, or in the checkout that the package is imported from.
    """
    path, package = Path(path), Path(__file__).resolve().parent
    if path.parent != Path("recipes") or os.path.lexists(path):
        return path
    shipped = (folder / "recipes" / path.name for folder in (package, package.parents[1]))
    return next((recipe for recipe in shipped if recipe.is_file()), path)


@contextmanager
def explain_refusal(action: str, advice: str = "") -> Iterator[None]:
    """Raise DataError, with what could not be done and why, in place of an error of the operating system."""
    try:
        yield
    except OSError as fault:
        raise DataError(f"cannot {action}: {fault.strerror or fault}{advice}") from fault


def write_text(path: str | Path, text: str) -> Path:
    """Write a text in UTF-8 under a temporary name in the same folder, then rename it: nobody reads half a file.

    Folders that are missing are made. Returns the path. Raises DataError with the path if disk or rights do not allow
    it.
    """
    return write_bytes(path, text.encode("utf8"))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write bytes as ``write_text`` writes text, and raise what it raises."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with explain_refusal(f"write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # tempfile would make a file that nobody else may read, whatever the umask says.
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as stream:
                stream.write(content)
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


@contextmanager
def open_growing(path: str | Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that appends one line to a text file, which can be read while it grows.

    Lines are written to ``NAME.part`` in the same folder, each at once; at the end of the context that file is renamed
    to ``NAME``. If the context raises, ``NAME.part`` stays and holds every line written so far; an empty one is
    removed. Raises DataError with the path if the disk or the rights do not allow it.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}{PART}")
    with explain_refusal(f"write {part}"):
        stream = part.open("w", encoding="utf8", newline="\n")

    def write(line: str) -> None:
        with explain_refusal(f"write {part}"):
            stream.write(f"{line}\n")
            stream.flush()

    try:
        yield write
    except BaseException:
        with contextlib.suppress(OSError):  # what a full disk did not take is written again
            stream.close()
        if part.stat().st_size == 0:
            part.unlink()
        raise
    with explain_refusal(f"write {path}", f"; the lines are in {part}"):
        stream.close()
        part.replace(path)


def remove_unfinished(folder: Path, *names: str) -> None:
    """Remove what a killed process left of the files ``names`` in a folder; no other process may be writing them."""
    for name in names:
        for path in folder.glob(f".{name}.*{UNFINISHED}"):
            path.unlink(missing_ok=True)


def apply_umask(folder: Path) -> None:
    """Give every file below a folder the permissions that the umask gives to a new file.

    safetensors makes files that only their owner may read.
    """
    probe = folder / f".umask{UNFINISHED}"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


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
    from filelock import FileLock, Timeout

    try:
        made = not os.path.isdir(folder)  # noqa: PTH112 - unlike pathlib, False where the folder above may not be entered
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as fault:
        raise DataError(f"cannot make the folder {folder}: {getattr(fault, 'strerror', None) or fault}") from fault
    key = (os.getpid(), threading.get_ident(), os.path.realpath(folder))
    if key in _held:
        yield
        return
    lock = FileLock(folder / LOCK, timeout=wait)
    try:
        lock.acquire()
    except Timeout as fault:
        from clockhands.reading import read_json

        said = "another process writes in it"
        with contextlib.suppress(DataError, KeyError):
            holder = read_json(folder / LOCK, DataError)
            said = f"process {holder['process']} on {holder['host']} has written in it since {holder['since']}"
        raise BusyError(f"{folder} is in use: {said}; wait until it ends, or choose another folder") from fault
    except OSError as fault:
        raise DataError(f"cannot write in {folder}: {fault.strerror or fault}") from fault
    _held.add(key)
    try:
        # Who holds the folder stands in the lock, for the message that another process prints.
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        content = {"process": os.getpid(), "host": socket.gethostname(), "since": since}
        with contextlib.suppress(OSError):
            (folder / LOCK).write_text(json.dumps(content) + "\n", "utf8")
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
