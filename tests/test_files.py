"""A file is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clockhands.errors import DataError
from clockhands.files import write_bytes, write_text


def test_writes_and_makes_folders(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a" / "b.txt", "β")
    assert path.read_bytes() == "β".encode()


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.txt"
    path.write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(DataError, match=r"^cannot write .*old\.txt: No space left on device$"):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["old.txt"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write"):
        write_text(tmp_path / "file" / "inside.txt", "x")
