"""What several test files of this folder read."""

from __future__ import annotations

from pathlib import Path

import pytest

from clockhands.data import Corpus, PairDataset, Tokenizers, encode_pairs, open_corpus, train_tokenizers


@pytest.fixture(scope="session")
def multi30k(shared_data: Path) -> tuple[Corpus, Tokenizers]:
    """German to English captions, and a shared tokenizer of 8000."""
    folder = shared_data / "multi30k"
    names = {"source": "train.de", "target": "train.en", "validation_source": "val.de", "validation_target": "val.en"}
    corpus = open_corpus("parallel", **{option: str(folder / name) for option, name in names.items()})
    return corpus, train_tokenizers(corpus, vocabulary=8000)


@pytest.fixture(scope="session")
def encoded_multi30k(multi30k: tuple[Corpus, Tokenizers]) -> PairDataset:
    """All its pairs for training as ids."""
    corpus, tokenizers = multi30k
    return encode_pairs(corpus.pairs("train"), tokenizers)
