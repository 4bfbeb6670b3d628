"""The bounds of scores and losses: the order-blind ceiling, and the floor of real text, below a trigram's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clockhands.data.datasets import WindowDataset, encode_stream, encode_texts
from clockhands.data.population import Ceiling, Listed
from clockhands.data.splits import Corpus
from clockhands.data.tokens import Tokenizers
from clockhands.errors import UsageError

MOST_TOKENS = 1_000_000
"""The most tokens of a text that are read."""


def find_ceiling(corpus: Corpus, tokenizers: Tokenizers, window: int = 128, *, masked: bool = False) -> Ceiling:
    """Compute the order-blind ceiling of a corpus for its tokenizers.

    It is computed over the population of the corpus if that is known, else over its test split (or validation, or
    train). For language modelling an item is a token of a ``window``, to be told from the bag of the tokens before it
    in the window, or with ``masked`` from the bag of all others. Raises UsageError for a corpus without an item.
    """
    split = next(name for name in ("test", "validation", "train") if name in corpus)
    if corpus.task == "language modelling":
        stream = encode_stream(tokenizers.source, corpus.documents(split))[:MOST_TOKENS]
        read = f"{len(stream):,} tokens of the {split} split in windows of {min(window, len(stream)):,}"
        return _measure_windows(stream, window, read, masked=masked)
    weights_V = _draw_weights(len(tokenizers.source))
    weights_V[tokenizers.source.eos_token_id] = 0

    def bags(texts: Sequence[str]) -> NDArray[np.uint64]:
        rows = encode_texts(tokenizers.source, texts)
        return np.array([weights_V[row].sum(dtype=np.uint64) for row in rows], dtype=np.uint64)

    ceilings = (population.measure(bags) for population in corpus.populations)
    known = next((ceiling for ceiling in ceilings if ceiling is not None), None)
    return known or Listed(corpus.pairs(split), f"the {len(corpus[split]):,} pairs of the {split} split").measure(bags)


def _draw_weights(size: int) -> NDArray[np.uint64]:
    """Draw a random number for each token; their sum over a text, modulo 2^64, stands for its bag."""
    return np.random.default_rng(0).integers(0, 2**64, size, dtype=np.uint64)


def _measure_windows(stream: NDArray[np.int32], window: int, population: str, *, masked: bool) -> Ceiling:
    """Compute the ceiling of a language model; ``population`` says over what, for the sentence about it."""
    length = min(window, len(stream))
    if length < 2:
        raise UsageError("the order-blind ceiling needs at least two tokens of text")
    ids_NS = stream[: len(stream) // length * length].reshape(-1, length)
    own_NS = _draw_weights(int(stream.max()) + 1)[ids_NS]
    before_NS = np.cumsum(own_NS, axis=1, dtype=np.uint64)
    bags_NS = before_NS[:, -1:] - own_NS if masked else before_NS[:, :-1]
    targets_NS = ids_NS if masked else ids_NS[:, 1:]
    bags_M, targets_M = bags_NS.ravel(), targets_NS.ravel()
    order = np.lexsort((targets_M, bags_M))
    new_bag_M = np.r_[True, np.diff(bags_M[order]) != 0]
    firsts = np.flatnonzero(new_bag_M | np.r_[True, np.diff(targets_M[order]) != 0])
    counts = np.diff(firsts, append=len(order))
    share = float(np.maximum.reduceat(counts, np.flatnonzero(new_bag_M[firsts])).sum() / len(order))
    return Ceiling(share, share, share, population, "masked tokens" if masked else "next tokens")


ORDER = 3
MARGIN = 0.4
"""Nats per token that a model has to be below the trigram before a claim about length is made of it."""


@dataclass(frozen=True)
class Floor:
    """The loss of the ``trigram`` of the training text on the held-out tokens that a model is scored on, in nats.

    ``texts``: how many training texts there are, each with a trigram of its own; then the loss is their mean.
    """

    trigram: float
    tokens: int
    texts: int = 1

    @property
    def bound(self) -> float:
        """The loss per token that has to be reached."""
        return self.trigram - MARGIN

    @property
    def sentence(self) -> str:
        """The floor in one sentence."""
        who = "A trigram model of the same text has"
        if self.texts > 1:
            who = f"Trigram models of the {self.texts} texts that the seeds train on have, in the mean,"
        return (
            f"{who} {self.trigram:.2f} nats per token on the {self.tokens:,} held-out "
            f"tokens, so that claims about length need a loss below {self.bound:.2f}."
        )


def find_floor(corpus: Corpus, tokenizers: Tokenizers, window: int = 128) -> Floor:
    """Return the floor of a text: of documents as a model reads them in windows, of pairs for their targets.

    Raises UsageError where there is no test or validation split, or nothing in it.
    """
    split = next((name for name in ("test", "validation") if name in corpus), None)
    if split is None:
        raise UsageError(f"corpus {corpus.name!r} has no test or validation split to score a trigram on")
    train: Sequence[Sequence[int] | NDArray[np.int32]]
    if corpus.task == "translation":
        train, held_out = (encode_texts(tokenizers.target, corpus.targets(part)) for part in ("train", split))
        rows, starts = [np.asarray(row) for row in held_out], 0
    else:
        train = [encode_stream(tokenizers.source, corpus.documents("train"))]
        stream = encode_stream(tokenizers.source, corpus.documents(split))
        windows = WindowDataset(stream, window)
        # The first token is only read.
        rows, starts = [stream[: len(windows) * (window - 1) + 1]], 1
    nats = [row[starts:] for row in score_trigram(train, rows, len(tokenizers.target))]
    scored = np.concatenate(nats)
    return Floor(float(scored.mean()), len(scored))


def score_trigram(
    train: Sequence[Sequence[int] | NDArray[np.int32]], held_out: Sequence[NDArray[np.int32]], vocabulary: int
) -> list[NDArray[np.float64]]:
    """Return -ln p of every held-out token, row by row; every row is read as if two start tokens stood before it.

    Raises UsageError for a text without a token, and for a vocabulary whose trigrams have no number.
    """
    if vocabulary + 1 > 2**21:
        raise UsageError(f"a trigram of a vocabulary of {vocabulary:,} tokens cannot be counted; 2,097,151 is the most")
    if not sum(map(len, train)) or not sum(map(len, held_out)):
        raise UsageError("a trigram needs a token of text to learn from, and one to be scored on")
    known_MO, asked_NO = (_number_ngrams(rows, vocabulary) for rows in (train, held_out))
    base, p_N = vocabulary + 1, np.full(len(asked_NO), 1 / vocabulary)
    for known_M, asked_N in zip(known_MO.T, asked_NO.T, strict=True):
        # p(w | h) of the n-grams asked for, interpolated with that of one token less (Witten & Bell 1991).
        grams_G, counts_G = np.unique(known_M, return_counts=True)
        histories_H, starts_H = np.unique(grams_G // base, return_index=True)
        totals_H, different_H = np.add.reduceat(counts_G, starts_H), np.diff(starts_H, append=len(grams_G))
        different_N = _look_up(histories_H, different_H, asked_N // base)
        whole_N = _look_up(histories_H, totals_H, asked_N // base) + different_N
        seen_N = _look_up(grams_G, counts_G, asked_N) + different_N * p_N
        p_N = np.where(whole_N > 0, seen_N / np.maximum(whole_N, 1), p_N)
    return np.split(-np.log(p_N), np.cumsum([len(row) for row in held_out])[:-1])


def _number_ngrams(rows: Sequence[Sequence[int] | NDArray[np.int32]], start: int) -> NDArray[np.int64]:
    """Return the number of the n-gram that ends at every token, for n from 1 to ``ORDER``: [tokens, orders]."""
    base, parts = start + 1, []
    for row in rows:
        padded = np.concatenate([np.full(ORDER - 1, start), np.asarray(row, np.int64)]).astype(np.int64)
        grams, number = [], np.zeros(len(row), np.int64)
        for back in range(ORDER):
            number = number + padded[ORDER - 1 - back : len(padded) - back] * base**back
            grams.append(number)
        parts.append(np.stack(grams, axis=1))
    return np.concatenate(parts)


def _look_up(keys_K: NDArray[np.int64], values_K: NDArray[np.int64], asked_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values of sorted keys; 0 for a key that is not there."""
    places_N = np.minimum(np.searchsorted(keys_K, asked_N), len(keys_K) - 1)
    return np.where(keys_K[places_N] == asked_N, values_K[places_N], 0)
