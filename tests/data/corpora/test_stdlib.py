"""The standard library as a corpus grows with its limit and keeps files in their split."""

from __future__ import annotations

import pytest

from clockhands.data import open_corpus
from clockhands.errors import DataError, UsageError


def test_stdlib_grows_with_its_limit_and_keeps_files_in_their_split() -> None:
    small, large = open_corpus("stdlib", limit=1_000_000), open_corpus("stdlib", limit=2_000_000)
    for split in ("train", "validation", "test"):
        assert set(small.documents(split)) <= set(large.documents(split))
    assert sum(len(text) for split in small for text in small.documents(split)) <= 1_000_000
    assert small.splits == open_corpus("stdlib", limit=1_000_000).splits
    for document in small.documents("test"):
        compile(document, "a document of stdlib", "exec")


def test_stdlib_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(UsageError, match="limit=10 characters"):
        open_corpus("stdlib", limit=10)
    with pytest.raises(UsageError, match=r"validation=0\.8 and test=0\.5"):
        open_corpus("stdlib", validation=0.8, test=0.5)
    with pytest.raises(UsageError, match="no file falls into validation and test"):
        open_corpus("stdlib", limit=100_000, validation=1e-9, test=1e-9)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="comes without its standard library"):
        open_corpus("stdlib")
