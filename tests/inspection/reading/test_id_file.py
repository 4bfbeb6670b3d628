"""A file of token ids is opened, or refused in a sentence, and nothing in it is executed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clockhands.errors import DataError
from clockhands.inspection.reading.id_file import read_ids


def _zip(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, ids=np.zeros((9, 12), dtype=int))


def _ragged(path: Path) -> None:
    np.save(path, np.array([[1, 2], [3]], dtype=object), allow_pickle=True)


def _cut(path: Path) -> None:
    np.save(path, np.zeros((9, 12), dtype=int))
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "there is no file"),
        (lambda path: path.mkdir(), "there is no file"),
        (lambda path: path.write_text("1 2 3"), r"is not a \.npy file of numbers"),
        (lambda path: path.write_bytes(b""), r"is not a \.npy file of numbers"),
        (_ragged, r"is not a \.npy file of numbers"),
        (_cut, r"is not a \.npy file of numbers"),
        (_zip, r"holds several arrays \(\.npz\)"),
        (lambda path: np.save(path, np.zeros((7, 12), dtype=int)), "has 7 texts; at least 8 are needed"),
    ],
)
def test_files_that_hold_no_token_ids(write: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path / "ids.npy")
    with pytest.raises(DataError, match=message):
        read_ids(tmp_path / "ids.npy")


class Opened:
    """What a pickled array would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("opened",)


def test_nothing_in_a_file_of_ids_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("ids.npy", np.array([Opened()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="is not a"):
        read_ids("ids.npy")
    assert not Path("opened").exists()


def test_a_fault_without_words_is_named_by_its_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "ids.npy", np.zeros((9, 9), dtype=np.int64))

    def fail(*args: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(DataError, match=r"is not a \.npy file of numbers .*: MemoryError$"):
        read_ids(tmp_path / "ids.npy")
