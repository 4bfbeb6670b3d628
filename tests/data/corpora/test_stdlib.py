"""The standard library as a corpus grows with its limit and keeps files in their split."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.data import open_corpus
from clockhands.data.splits import redraw_training
from clockhands.errors import DataError, UsageError


def test_stdlib_grows_with_its_limit_and_keeps_files_in_their_split() -> None:
    small, large = open_corpus("stdlib", limit=1_000_000), open_corpus("stdlib", limit=2_000_000)
    for split in ("train", "validation", "test"):
        assert set(small.documents(split)) <= set(large.documents(split))
    assert sum(len(text) for split in small for text in small.documents(split)) <= 1_000_000
    assert small.splits == open_corpus("stdlib", limit=1_000_000).splits
    for document in small.documents("test"):
        compile(document, "a document of stdlib", "exec")


def test_a_limit_of_the_files_reads_their_first_whole_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lines of 4, 996 and 2 characters: 1,000 and 1,001 hold the first two, 1,002 all three."""
    for number in range(40):
        (tmp_path / f"part_{number:02}.py").write_text(f"#{number:02}\n" + "#" * 995 + "\n#\n")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    for file_limit, length in ((0, 1002), (1000, 1000), (1001, 1000), (1002, 1002)):
        corpus = open_corpus("stdlib", limit=0, file_limit=file_limit, validation=0.2, test=0.2)
        texts = [text for split in corpus for text in corpus.documents(split)]
        assert len(texts) == 40 and {len(text) for text in texts} == {length}
        assert corpus.facts.get("file_limit", 0) == file_limit


def test_a_limit_of_the_files_cuts_a_line_that_is_longer_and_redraws_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(40):
        (tmp_path / f"part_{number:02}.py").write_text(f"# {number:02} " + "x" * 5000)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    corpus = open_corpus("stdlib", limit=0, file_limit=1000, validation=0.2, test=0.2)
    texts = [text for split in corpus for text in corpus.documents(split)]
    assert len(texts) == 40 and {len(text) for text in texts} == {1000}
    assert {len(text) for text in redraw_training(corpus, 1) if isinstance(text, str)} == {1000}


def test_stdlib_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(UsageError, match="limit=10 characters"):
        open_corpus("stdlib", limit=10)
    for file_limit in (-1, 999):
        with pytest.raises(UsageError, match=f"file_limit={file_limit} characters"):
            open_corpus("stdlib", file_limit=file_limit)
    with pytest.raises(UsageError, match=r"validation=0\.8 and test=0\.5"):
        open_corpus("stdlib", validation=0.8, test=0.5)
    with pytest.raises(UsageError, match="no file falls into validation and test"):
        open_corpus("stdlib", limit=100_000, validation=1e-9, test=1e-9)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="comes without its standard library"):
        open_corpus("stdlib")
