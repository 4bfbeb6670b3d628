"""Rows kept in one array, and the windows of a long text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from clockhands.data import (
    IGNORED_LABEL,
    Corpus,
    Example,
    MaskedCollator,
    Pair,
    PairCollator,
    Tokenizers,
    WindowCollator,
    WindowDataset,
    datasets,
    encode_pairs,
    encode_stream,
    encode_texts,
    kinds,
    open_corpus,
    train_tokenizer,
    train_tokenizers,
)
from clockhands.data.datasets import CHUNK, Ragged, pad
from clockhands.errors import ClockhandsWarning, DataError, UsageError


@given(st.lists(st.lists(st.integers(0, 9))))
def test_ragged_rows(rows: list[list[int]]) -> None:
    ragged = Ragged.of(rows)
    assert [ragged[row].tolist() for row in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@given(st.integers(2, 60), st.integers(2, 20))
def test_windows_side_by_side_predict_every_token_once(size: int, length: int) -> None:
    stream = np.arange(size, dtype=np.int32)
    if size < length:
        with pytest.raises(UsageError, match=f"the text has {size} tokens, less than one window of length={length}"):
            WindowDataset(stream, length)
        return
    data = WindowDataset(stream, length)
    predicted = [token for row in range(len(data)) for token in data[row]["labels"][1:].tolist()]
    assert predicted == list(range(1, len(predicted) + 1))
    assert size - len(predicted) - 1 < length - 1
    anywhere = WindowDataset(stream, length, stride=1)
    assert anywhere[len(anywhere) - 1]["input_ids"][-1] == size - 1
    assert anywhere.lengths.shape == (size - length + 1, 1)


def test_a_window_needs_two_tokens() -> None:
    with pytest.raises(UsageError, match="length=1; a window holds at least 2"):
        WindowDataset(np.arange(9, dtype=np.int32), 1)


def test_every_window_counts_under_its_index_and_under_no_other() -> None:
    """Index ~i gives window i as ballast: the same ids, and labels that no loss counts."""
    data = WindowDataset(np.arange(9, dtype=np.int32), 4)
    for index in range(len(data)):
        counted, ballast = data[index], data[~index]
        assert counted["input_ids"].tolist() == counted["labels"].tolist() == ballast["input_ids"].tolist()
        assert set(ballast["labels"].tolist()) == {IGNORED_LABEL}


def example(ids: list[int], labels: list[int]) -> Example:
    return {"input_ids": np.array(ids, np.int32), "labels": np.array(labels, np.int32)}


def test_pairs_by_hand() -> None:
    batch = PairCollator(pad_id=9)([example([1, 2, 3], [4]), example([5], [6, 7])])
    assert batch["input_ids"].tolist() == [[1, 2, 3], [5, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[4, -100], [6, 7]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    wide = PairCollator(pad_id=9, multiple=8)([example([1, 2, 3], [4]), example([5], [6, 7])])
    assert wide["input_ids"].shape == wide["labels"].shape == (2, 8)


@given(st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=9), st.integers(1, 8))
def test_padding_keeps_every_row(rows: list[list[int]], multiple: int) -> None:
    padded_BS, mask_BS = pad([np.array(row, np.int32) for row in rows], -1, multiple)
    assert [row[real == 1].tolist() for row, real in zip(padded_BS, mask_BS, strict=True)] == rows
    assert bool((padded_BS[mask_BS == 0] == -1).all())
    assert padded_BS.shape[1] % multiple == 0
    assert padded_BS.shape[1] - max(map(len, rows)) < multiple


def test_windows() -> None:
    data = WindowDataset(np.arange(10, dtype=np.int32), 4)
    batch = WindowCollator()([data[0], data[2], data[~1]])
    assert batch["input_ids"].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9], [3, 4, 5, 6]]
    assert batch["labels"].tolist() == [[0, 1, 2, 3], [6, 7, 8, 9], [IGNORED_LABEL] * 4]


def test_masking_takes_the_shares_of_bert() -> None:
    ids = np.random.default_rng(0).integers(5, 1000, (200, 128)).astype(np.int32)
    ids[:, 0] = 2
    rows = [example(row.tolist(), row.tolist()) for row in ids]
    batch = MaskedCollator(mask_id=4, ordinary_V=np.arange(5, 1000), seed=1)(rows)
    seen, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
    drawn = labels != IGNORED_LABEL
    assert not drawn[:, 0].any(), "a special token is never drawn"
    np.testing.assert_array_equal(labels[drawn], ids[drawn])
    np.testing.assert_array_equal(seen[~drawn], ids[~drawn])
    # 25,400 tokens: four standard deviations of each share are below these bounds.
    assert drawn[:, 1:].mean() == pytest.approx(0.15, abs=0.01)
    assert (seen[drawn] == 4).mean() == pytest.approx(0.8, abs=0.03)
    assert (seen[drawn] == ids[drawn]).mean() == pytest.approx(0.1, abs=0.02)
    assert seen[drawn].min() >= 4


def test_masking_is_repeated_for_the_same_batch_alone() -> None:
    rows = [example(list(range(start, start + 64)), list(range(start, start + 64))) for start in (5, 80, 200)]
    masked = MaskedCollator(mask_id=4, ordinary_V=np.arange(5, 300), seed=1)
    first = masked(rows)["labels"]
    assert torch.equal(first, masked(rows)["labels"])
    assert not torch.equal(first[:2], masked(rows[:2])["labels"])
    assert not torch.equal(first, MaskedCollator(4, np.arange(5, 300), seed=2)(rows)["labels"])
    ballast = [example(list(range(64)), [IGNORED_LABEL] * 64)]
    assert bool((masked(ballast)["labels"] == IGNORED_LABEL).all())


def test_masking_needs_a_mask() -> None:
    texts = ["some text to learn from"]
    tokenizer = train_tokenizer(texts, kind="character", task="masked language modelling")
    collate = MaskedCollator.of(tokenizer)
    assert collate.mask_id == tokenizer.mask_token_id
    assert not set(collate.ordinary_V.tolist()) & set(tokenizer.all_special_ids)
    assert len(collate.ordinary_V) == len(tokenizer) - 5
    with pytest.raises(UsageError, match="train one with task='masked language modelling'"):
        MaskedCollator.of(train_tokenizer(texts, kind="character"))
    with pytest.raises(UsageError, match=r"share=1\.5 of tokens"):
        MaskedCollator.of(tokenizer, share=1.5)


PAIRS = [Pair("ab", "b"), Pair("a", "abab"), Pair("b", "a")]


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    # Ids: a 4, b 5, the end 2.
    one = train_tokenizer(["aab"], kind="character")
    return Tokenizers(one, one)


def test_pairs_end_on_both_sides(tokenizers: Tokenizers) -> None:
    data = encode_pairs(PAIRS, tokenizers)
    assert [data[row]["input_ids"].tolist() for row in range(3)] == [[4, 5, 2], [4, 2], [5, 2]]
    assert [data[row]["labels"].tolist() for row in range(3)] == [[5, 2], [4, 5, 4, 5, 2], [4, 2]]
    assert data.lengths.tolist() == [[3, 2], [2, 5], [2, 2]]
    assert data[~1]["input_ids"].tolist() == [4, 2] and data[~1]["labels"].tolist() == [IGNORED_LABEL] * 5


def test_long_pairs_are_refused_dropped_or_cut(tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError, match="pair 2 has 2 source and 5 target tokens, more than max_length=3; raise it"):
        encode_pairs(PAIRS, tokenizers, max_length=3)
    dropped = encode_pairs(PAIRS, tokenizers, max_length=3, longer="drop")
    assert (len(dropped), dropped.dropped) == (2, 1)
    with pytest.warns(
        ClockhandsWarning, match="^1 of 3 pairs has a side of more than 3 tokens, and is cut to 3 tokens"
    ):
        cut = encode_pairs(PAIRS, tokenizers, max_length=3, longer="cut")
    assert (len(cut), cut.dropped) == (3, 0)
    assert cut[1]["labels"].tolist() == [4, 5, 2]
    with pytest.raises(DataError, match="no pair is left of 3: each has a side of more than max_length=1 tokens"):
        encode_pairs(PAIRS, tokenizers, max_length=1, longer="drop")
    with pytest.raises(DataError, match="no pair is left of 0: there are none"):
        encode_pairs([], tokenizers)
    with pytest.raises(UsageError, match="unknown choice for longer pairs 'trim'"):
        encode_pairs(PAIRS, tokenizers, max_length=9, longer="trim")


def test_a_stream_ends_every_document() -> None:
    tokenizer = train_tokenizer(["aab"], kind="character", task="language modelling")
    assert encode_stream(tokenizer, ["ab", "", "b"]).tolist() == [4, 5, 2, 2, 5, 2]
    assert encode_stream(tokenizer, []).tolist() == []


def test_one_text_is_encoded_as_in_a_batch() -> None:
    corpus = open_corpus("roles", train=100, validation=10, test=10)
    tokenizer = train_tokenizers(corpus, vocabulary=300).source
    texts = corpus.texts("train")
    assert encode_texts(tokenizer, texts) == [tokenizer(text)["input_ids"] for text in texts]


class Counting:
    """A tokenizer's backend that notes how many texts it was given at a time, and how long."""

    def __init__(self, backend: Any) -> None:
        self.__dict__.update(backend=backend, given=[], longest=[])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.backend, name, value)

    def encode_batch_fast(self, texts: list[str], **rest: Any) -> Any:
        self.given.append(len(texts))
        self.longest.append(max(map(len, texts), default=0))
        return self.backend.encode_batch_fast(texts, **rest)


def test_texts_are_encoded_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer(["aab"], kind="character")
    counting = Counting(tokenizer.backend_tokenizer)
    monkeypatch.setattr(type(tokenizer), "backend_tokenizer", counting)
    assert encode_texts(tokenizer, ["ab"] * (CHUNK + 5)) == [[4, 5, 2]] * (CHUNK + 5)
    assert counting.given == [CHUNK, 5]


@pytest.mark.parametrize(("kind", "is_cut"), [("bpe", True), ("word", True), ("llama", False)])
def test_a_long_document_is_encoded_piece_by_piece(kind: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer takes hundreds of bytes for a character. Where a cut changes ids, the text stays whole."""
    text = "The clock has many  hands,\n\nand each turns. " * 50
    tokenizer = train_tokenizer([text], kind="bpe" if kind == "llama" else kind, task="language modelling")
    if kind == "llama":  # as its tokenizer, which writes a space before every text
        tokenizer.backend_tokenizer.normalizer = normalizers.Prepend("_")
    whole = encode_stream(tokenizer, ["a", text, "b"])
    for module, name, number in ((kinds, "PIECE", 100), (datasets, "PIECE", 100), (datasets, "NEAR", 20)):
        monkeypatch.setattr(module, name, number)
    counting = Counting(tokenizer.backend_tokenizer)
    monkeypatch.setattr(type(tokenizer), "backend_tokenizer", counting)
    np.testing.assert_array_equal(encode_stream(tokenizer, ["a", text, "b"]), whole)
    assert (max(counting.longest) < 150) == is_cut and "".join(kinds.cut_long(text)) == text


def test_multi30k_is_encoded_and_decoded(multi30k: tuple[Corpus, Tokenizers], encoded_multi30k: Any) -> None:
    (corpus, tokenizers), data = multi30k, encoded_multi30k
    pair = corpus.pairs("train")[1234]
    written = tokenizers.target.decode(data[1234]["labels"], skip_special_tokens=True)
    assert written == pair.target
