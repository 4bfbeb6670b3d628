"""The standard library as a corpus grows with its limit and keeps files in their split."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clockhands.data import open_corpus
from clockhands.data.corpora.stdlib import NAMES, VALUES
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


def test_the_facts_of_a_document_agree() -> None:
    corpus = open_corpus("facts", train=30, validation=3, test=3, names=5, lines=80, asked=0.5)
    told = []
    for document in corpus["train"]:
        found = re.findall(r"^@ (\w+) (\w+)$", document, re.M)
        assert 20 < len(found) < 60 and document.count("\n") == 80
        values = dict(found)
        assert all(values[name] == value for name, value in found)
        assert len(values) <= 5 and set(values) <= set(NAMES) and set(values.values()) <= set(VALUES)
        told.append(values)
    both = {name for values in told for name in values if sum(name in other for other in told) > 1}
    assert any(len({values[name] for values in told if name in values}) > 1 for name in both)
    assert not set(corpus["train"]) & set(corpus["test"])


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(UsageError, match="names=41; there are 40"):
        open_corpus("facts", names=41)
    with pytest.raises(UsageError, match="names=5 must be from fewest=6 to words=40"):
        open_corpus("facts", names=5, fewest=6)
    with pytest.raises(UsageError, match=r"asked is 2\.0, but must be from 0 to 1"):
        open_corpus("facts", asked=2)
    for option in ("lines", "train"):
        with pytest.raises(UsageError, match=r"corpus 'facts': train=.* sentences need .* ask for fewer"):
            open_corpus("facts", **{option: 2**60})


def test_few_words_serve_and_a_name_is_told_again_after_its_value() -> None:
    corpus = open_corpus(
        "facts", train=30, validation=3, test=3, names=3, fewest=1, words=4, repeated=True, lines=20, asked=0.9
    )
    counts = set()
    for document in corpus["train"]:
        told = re.findall(r"^@ (\w+) (\w+) (\w+)$", document, re.M)
        assert all(first == again for first, _, again in told)
        assert {name for name, _, _ in told} <= set(NAMES[:4]) and {value for _, value, _ in told} <= set(VALUES[:4])
        counts.add(len({name for name, _, _ in told}))
    assert counts == {1, 2, 3}
