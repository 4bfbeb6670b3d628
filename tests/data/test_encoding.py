"""Text to ids, and ids to examples."""

from __future__ import annotations

from typing import Any

import pytest

from clockhands.data import (
    IGNORED_LABEL,
    Corpus,
    Pair,
    Tokenizers,
    encode_pairs,
    encode_stream,
    encode_texts,
    open_corpus,
    train_tokenizer,
    train_tokenizers,
)
from clockhands.data.encoding import CHUNK
from clockhands.errors import ClockhandsWarning, DataError, UsageError

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
    """A tokenizer's backend that notes how many texts it was given at a time."""

    def __init__(self, backend: Any) -> None:
        self.__dict__.update(backend=backend, given=[])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.backend, name, value)

    def encode_batch_fast(self, texts: list[str], **rest: Any) -> Any:
        self.given.append(len(texts))
        return self.backend.encode_batch_fast(texts, **rest)


def test_texts_are_encoded_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_tokenizer(["aab"], kind="character")
    counting = Counting(tokenizer.backend_tokenizer)
    monkeypatch.setattr(type(tokenizer), "backend_tokenizer", counting)
    assert encode_texts(tokenizer, ["ab"] * (CHUNK + 5)) == [[4, 5, 2]] * (CHUNK + 5)
    assert counting.given == [CHUNK, 5]


def test_multi30k_is_encoded_and_decoded(multi30k: tuple[Corpus, Tokenizers], encoded_multi30k: Any) -> None:
    (corpus, tokenizers), data = multi30k, encoded_multi30k
    pair = corpus.pairs("train")[1234]
    written = tokenizers.target.decode(data[1234]["labels"], skip_special_tokens=True)
    assert written == pair.target
