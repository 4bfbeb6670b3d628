"""Writing files so that readers never meet half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from clockhands.errors import DataError


def write_text(path: str | Path, text: str) -> Path:
    """Write under a temporary name in the same folder, then rename: readers never meet half a file."""
    return write_bytes(path, text.encode("utf8"))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """As ``write_text``, for bytes. Raises DataError with the path if the disk or the rights do not allow it."""
    path = Path(path)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as fault:
        raise DataError(f"cannot write {path}: {fault.strerror or fault}") from fault
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return path
