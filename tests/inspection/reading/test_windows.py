"""Cutting text into windows."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from clockhands.errors import DataError, UsageError
from clockhands.inspection import inspect
from clockhands.inspection.reading.windows import (
    _cut_pair_windows,
    cut_ids,
    cut_windows,
    describe_origin,
    read_ids,
    select_one_length,
)

from .. import planted
from ..words import make_splitter

LETTERS = make_splitter(lambda text: [10 + ord(letter) for letter in text], after=(2, 3))


def test_windows_are_equal_and_lose_no_token_in_between() -> None:
    found = cut_windows(LETTERS, ["a" * 150, "b" * 150], length=13, count=100)
    assert found.ids_NT.shape == (30, 13)
    assert found.ordinary_T.tolist() == [False, *[True] * 10, False, False]
    assert found.ids_NT[:, found.ordinary_T].flatten().tolist() == [10 + ord("a")] * 150 + [10 + ord("b")] * 150
    assert found.ids_NT[:, [0, -2, -1]].unique(dim=0).tolist() == [[1, 2, 3]]


def test_short_text_gives_shorter_windows_so_that_there_are_a_few() -> None:
    assert cut_windows(LETTERS, ["a" * 80], length=128, count=96).ids_NT.shape == (8, 13)


@pytest.mark.parametrize("text", ["", "a", "ab" * 10])
def test_too_little_text(text: str) -> None:
    with pytest.raises(DataError, match=f"the text has {len(text)} tokens; 32 are the least"):
        cut_windows(LETTERS, [text], length=128, count=96)


@pytest.mark.parametrize(
    ("tokenizer", "text", "length", "message"),
    [
        (LETTERS, ["a" * 9999], 600, "windows of 600 tokens do not fit this model, which reads at most 512"),
        (None, torch.zeros(4, 600, dtype=torch.long), 600, "texts of 600 tokens do not fit"),
        (None, ["words"], 128, "without a tokenizer"),
        (LETTERS, ["a" * 999], 6, "of windows of 6 tokens 3 are special ones, and at least 4 others are needed"),
    ],
)
def test_windows_that_cannot_be_cut(tokenizer: Any, text: Any, length: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut_windows(tokenizer, text, length=length, count=96, max_length=512)


def test_windows_longer_than_the_texts_of_ids() -> None:
    with pytest.raises(UsageError, match="windows of 13 tokens were asked for, but the texts of ids have 12 each"):
        cut_ids(np.zeros((9, 12), dtype=int), count=9, max_length=None, length=13)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(4, 12), r"must be integers of shape \[texts, tokens\].*float32 of shape \[4, 12\]"),
        (torch.zeros(4, 12).bool(), "must be integers.*these are bool"),
        (torch.zeros(2, 4, 12).long(), r"must be integers.*of shape \[2, 4, 12\]"),
        (np.array("words"), r"must be integers.*of shape \[\]"),
        (torch.zeros(2, 12).long(), "at least 3 texts of 4 tokens; these are 2 of 12"),
        (torch.zeros(9, 3).long(), "at least 3 texts of 4 tokens; these are 9 of 3"),
        (torch.zeros(12).long(), "the text of ids has 12 tokens; 32 are the least"),
        (torch.full((4, 12), -1), "must be 0 or more; these go from -1 to -1"),
        (np.full((4, 12), 2**63, dtype=np.uint64), "must be 0 or more; these go from 9223372036854775808"),
    ],
)
def test_token_ids_of_the_wrong_form(ids: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cut_ids(ids, count=96, max_length=512)


@pytest.mark.parametrize("kind", ["int64", "uint16", ">i4", "int8"])
def test_token_ids_of_every_integer_type_are_used_as_they_are(kind: str, tmp_path: Path) -> None:
    ids = np.arange(120).reshape(10, 12)
    np.save(tmp_path / "ids.npy", ids.astype(kind))
    found = cut_ids(read_ids(tmp_path / "ids.npy"), count=9, max_length=None, length=5)
    assert found.ids_NT.tolist() == ids[:9, :5].tolist()
    assert found.ordinary_T.tolist() == [True] * 5


def test_one_long_text_of_ids_is_cut_into_windows() -> None:
    found = cut_ids(np.arange(100), count=3, max_length=None, length=11)
    assert found.ids_NT.flatten().tolist() == list(range(33)) and found.ids_NT.shape == (3, 11)
    assert cut_ids(np.arange(100), count=99, max_length=None, length=50).ids_NT.shape == (8, 12)
    assert cut_ids(np.arange(2000), count=99, max_length=64).ids_NT.shape == (31, 64)


def test_windows_of_ids_have_the_length_that_was_asked_for() -> None:
    ids = torch.arange(640).view(10, 64)
    assert torch.equal(cut_windows(None, ids, length=16, count=5).ids_NT, ids[:5, :16])
    assert torch.equal(cut_windows(None, ids, length=128, count=5).ids_NT, ids[:5])


def test_select_one_length_are_the_longest_of_which_there_are_enough() -> None:
    rows = [[5] * 4] * 6 + [[6] * 9] * 3 + [[7] * 12] * 2
    enough = select_one_length(rows, most=5, enough=3)
    assert enough.ids_NT.tolist() == [[6] * 9] * 3
    assert enough.ordinary_T.tolist() == [True] * 8 + [False]
    assert select_one_length(rows, most=5, enough=7).ids_NT.tolist() == [[5] * 4] * 5, "else the most frequent"
    assert select_one_length([*rows[6:], [7] * 12], most=9).ids_NT.shape == (3, 12), "of equals the longer one"


@pytest.mark.parametrize(
    ("length", "count", "message"),
    [
        (-3, 96, r"length is -3; a window needs at least 4 tokens \(length=\.\.\.\)$"),
        (0, 96, "length is 0; a"),
        (8, 2, r"count is 2; at least 3 windows are needed \(count=\.\.\.\)$"),
    ],
)
def test_numbers_that_make_no_windows_are_refused(length: int, count: int, message: str) -> None:
    """The options --length and --texts, which need 8, are not named beside 4 and 3."""
    with pytest.raises(UsageError, match=message):
        inspect(planted.uniform(), texts=planted.ids(), length=length, count=count)


@pytest.mark.parametrize("count", [3, 4, 7, 8, 96])
def test_few_windows_of_much_text_are_as_long_as_asked_for(count: int) -> None:
    """Text was read until ``count`` windows were full, and then cut into at least eight: four of 128 had 64 tokens."""
    texts = ["a" * 50] * 400
    assert cut_windows(LETTERS, texts, length=128, count=count).ids_NT.shape == (count, 128)
    assert cut_windows(LETTERS, texts, length=10, count=count).ids_NT.shape == (count, 10)


@pytest.mark.parametrize("count", [3, 8])
def test_few_windows_of_a_decoder(count: int) -> None:
    pairs = [("b" * 9, "a" * 50)] * 400
    found = _cut_pair_windows(LETTERS, LETTERS, pairs, length=128, count=count)
    assert found.ids_NT.shape == (count, 128) and len(found.source_NS) == count
    with pytest.raises(DataError, match="the text fills 6 windows of 128 tokens; 8 are the least"):
        _cut_pair_windows(LETTERS, LETTERS, pairs[:18], length=128, count=count)


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


@pytest.mark.parametrize(
    ("texts", "pairs", "default", "source", "told"),
    [
        (["a"], None, True, False, " of the text it was trained on"),
        (None, None, True, False, " of Python's documentation"),
        (None, [("a", "b")], True, True, " of the text it was trained on, with the sources that they translate"),
        (None, None, True, True, " of Python's documentation, with the same text as source"),
        (["a"], None, False, False, ""),
        (None, [("a", "b")], False, True, ", with the same text as source"),
    ],
)
def test_the_origin_of_the_text_is_told(texts: Any, pairs: Any, default: bool, source: bool, told: str) -> None:
    subject: Any = SimpleNamespace(training_texts=texts, training_pairs=pairs)
    data: Any = SimpleNamespace(source_NS=1 if source else None)
    assert describe_origin(subject, data, default) == told
