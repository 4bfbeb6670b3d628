"""Reading files of settings, and writing files so that readers never meet half of one, with the umask's permissions."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clockhands.errors import DataError

UNFINISHED = ".writing"
"""How the name of a file ends while it is written."""
LARGEST_SETTINGS = 8 * 2**20
"""Bytes of the largest file of settings that is read: what is larger is something else."""
DEEPEST = 20
"""Tables within tables that a file of settings may have; ours have five at most."""


def read_toml(path: str | Path, what: str = "the file") -> dict[str, Any]:
    """Read the tables of a TOML file, with or without a byte order mark; ``what`` it is, for the message.

    Raises DataError for a file that cannot be read, is larger than ``LARGEST_SETTINGS``, is no TOML in UTF-8, or nests
    tables or lists more than ``DEEPEST`` deep.
    """
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(LARGEST_SETTINGS + 1)
    except (OSError, ValueError) as fault:
        raise DataError(f"cannot read {what} {path}: {getattr(fault, 'strerror', None) or fault}") from fault
    if len(content) > LARGEST_SETTINGS:
        raise DataError(f"cannot read {what} {path}: it is larger than {LARGEST_SETTINGS:,} bytes")
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except RecursionError as fault:
        raise DataError(_too_deep(path)) from fault
    except ValueError as fault:
        # Bytes that are not UTF-8, a fault of the syntax, or an integer of more digits than Python reads.
        raise DataError(f"{path} is not TOML: {str(fault)[:200]}") from fault
    if is_deep(tables, DEEPEST):
        raise DataError(_too_deep(path))
    return tables


def is_deep(tables: Mapping[str, Any], deepest: int) -> bool:
    """Say whether tables and lists stand within each other more than ``deepest`` levels deep."""
    level: list[Any] = [tables]
    for _ in range(deepest):
        level = [inner for item in level for inner in (item.values() if isinstance(item, Mapping) else item)]
        level = [item for item in level if isinstance(item, (Mapping, list))]
    return bool(level)


def find_recipe(path: str | Path) -> Path:
    """Return the path of a recipe or plan; ``recipes/NAME.toml`` is found from any folder.

    A file that exists is itself. Otherwise a path of this form is that of the recipe that comes with Clockhands: inside
    the installed package, or in the checkout that the package is imported from.
    """
    path, package = Path(path), Path(__file__).resolve().parent
    if path.parent != Path("recipes") or os.path.lexists(path):
        return path
    shipped = (folder / "recipes" / path.name for folder in (package, package.parents[1]))
    return next((found for found in shipped if found.is_file()), path)


def _too_deep(path: str | Path) -> str:
    return f"{path} nests tables or lists more than {DEEPEST} deep; no file of settings needs that"


def write_text(path: str | Path, text: str) -> Path:
    """Write under a temporary name in the same folder, then rename: readers never meet half a file."""
    return write_bytes(path, text.encode("utf8"))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write bytes as ``write_text`` does text. Raises DataError with the path if disk or rights do not allow it."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not by tempfile, whose files nobody else may read whatever the umask says.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as stream:
            stream.write(content)
        temporary.replace(path)
    except OSError as fault:
        raise DataError(f"cannot write {path}: {fault.strerror or fault}") from fault
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


PART = ".part"


@contextmanager
def growing(path: str | Path) -> Iterator[Callable[[str], None]]:
    """Give a function that writes one line of a text file, which can be followed while it grows.

    Lines go to ``NAME.part`` in the same folder, each at once; at the end of the block that file becomes ``NAME``. If
    the block raises, ``NAME.part`` stays and holds every line written so far; an empty one is removed.
    Raises DataError with the path if the disk or the rights do not allow it.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}{PART}")
    try:
        stream = part.open("w", encoding="utf8", newline="\n")
    except OSError as fault:
        raise DataError(f"cannot write {part}: {fault.strerror or fault}") from fault

    def write(line: str) -> None:
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except OSError as fault:
            raise DataError(f"cannot write {part}: {fault.strerror or fault}") from fault

    with stream:
        try:
            yield write
        except BaseException:
            if stream.tell() == 0:
                part.unlink(missing_ok=True)
            raise
    try:
        part.replace(path)
    except OSError as fault:
        raise DataError(f"cannot write {path}: {fault.strerror or fault}; the lines are in {part}") from fault


def remove_unfinished(folder: Path, *names: str) -> None:
    """Remove what a process that was killed left of these files; nobody else may be writing them."""
    for name in names:
        for path in folder.glob(f".{name}.*{UNFINISHED}"):
            path.unlink(missing_ok=True)


def apply_umask(folder: Path) -> None:
    """Give every file below a folder the permissions of a newly made one: safetensors keeps its files to the owner."""
    probe = folder / f".umask{UNFINISHED}"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def check_readable(*paths: Path) -> None:
    """Raise PermissionError for the first file that is there and may not be read.

    The Rust side of safetensors and tokenizers says "No such file" of such a file.
    """
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.open("rb").close()
