"""The trigram of a text: against a slow one, and against probabilities that sum to one."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from clockhands.data import Corpus, Pair, train_tokenizers
from clockhands.data.trigram import MARGIN, Floor, find_floor, score_trigram
from clockhands.errors import UsageError

START = -1


def slow(train: list[list[int]], vocabulary: int) -> object:
    """Witten and Bell by dictionaries: p(w | h) of any history."""
    after: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for row in train:
        padded = [START, START, *row]
        for place in range(2, len(padded)):
            for order in range(3):
                after[tuple(padded[place - order : place])][padded[place]] += 1

    def probability(history: tuple[int, ...], word: int) -> float:
        lower = probability(history[1:], word) if history else 1 / vocabulary
        follow = after.get(history)
        if follow is None:
            return lower
        return (follow[word] + len(follow) * lower) / (follow.total() + len(follow))

    return probability


@pytest.mark.parametrize("seed", range(3))
def test_every_token_has_the_probability_of_the_formula(seed: int) -> None:
    rng = random.Random(seed)
    train, held_out = ([[rng.randrange(6) for _ in range(rng.randrange(1, 30))] for _ in range(8)] for _ in range(2))
    probability = slow(train, 7)
    scored = score_trigram(train, [np.array(row, np.int32) for row in held_out], 7)
    for row, nats in zip(held_out, scored, strict=True):
        padded = [START, START, *row]
        expected = [-math.log(probability((padded[i - 2], padded[i - 1]), padded[i])) for i in range(2, len(padded))]
        assert nats == pytest.approx(expected)


def test_probabilities_of_all_tokens_sum_to_one() -> None:
    train = [[0, 1, 2, 0, 1, 3, 0, 1]]
    for history in ([0, 1], [3, 3], [4, 0]):
        rows = [np.array([*history, word], np.int32) for word in range(5)]
        assert sum(math.exp(-nats[-1]) for nats in score_trigram(train, rows, 5)) == pytest.approx(1)


def test_a_text_that_two_tokens_decide_is_known_nearly_whole() -> None:
    corpus = Corpus("own", "language modelling", {"train": ["a b c d " * 500], "test": ["a b c d " * 60]})
    floor = find_floor(corpus, train_tokenizers(corpus, kind="word"), window=16)
    assert floor.trigram < 0.05 and floor.tokens % 15 == 0
    rng = random.Random(0)
    noise = {split: [" ".join(rng.choices("abcd", k=size))] for split, size in (("train", 20_000), ("test", 2_000))}
    corpus = Corpus("own", "language modelling", noise)
    assert find_floor(corpus, train_tokenizers(corpus, kind="word"), window=16).trigram == pytest.approx(
        math.log(4), abs=0.03
    )


def test_pairs_are_scored_by_their_targets() -> None:
    pairs = [Pair("x", "a b"), Pair("y", "a b")]
    corpus = Corpus("own", "translation", {"train": pairs * 200, "test": pairs})
    floor = find_floor(corpus, train_tokenizers(corpus, kind="word"))
    assert floor.trigram < 0.02 and floor.tokens == 6, "two words and the end of each target"


def test_the_floor_is_said() -> None:
    floor = Floor(2.091, 1000)
    assert floor.bound == pytest.approx(2.091 - MARGIN)
    assert floor.sentence == (
        "A trigram model of the same text has 2.09 nats per token on the 1,000 held-out tokens, so that claims about "
        "length need a loss below 1.69."
    )


def test_what_has_no_trigram_is_refused() -> None:
    row = [np.array([1], np.int32)]
    with pytest.raises(UsageError, match="needs a token of text to learn from"):
        score_trigram([], row, 5)
    with pytest.raises(UsageError, match="a vocabulary of 3,000,000 tokens cannot be counted"):
        score_trigram([[1]], row, 3_000_000)
    corpus = Corpus("own", "language modelling", {"train": ["a b"]})
    with pytest.raises(UsageError, match="has no test or validation split"):
        find_floor(corpus, train_tokenizers(corpus, kind="word"))
