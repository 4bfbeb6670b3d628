"""The trigram of a text: against a slow one, and against probabilities that sum to one."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest

from clockhands.data import Corpus, Pair, encode_stream, encode_texts, find_ceiling, open_corpus, train_tokenizers
from clockhands.data.bounds import MARGIN, Floor, find_floor, score_trigram
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


TEXT = ["to be or not to be that is the question", "be or be not", "the question is that to be or not"] * 4


def test_all_numbers_are_counted() -> None:
    """Of 0 to 9,999: equally many of each count of digits are drawn, as far as there are any."""
    corpus = open_corpus("numbers", largest=9999, train=4000, validation=100, test=900, longer=0)
    tokenizers = train_tokenizers(corpus)
    from num2words import num2words

    rows = encode_texts(tokenizers.source, [num2words(number, lang="de") for number in range(10_000)])
    # 5,000 are drawn: all 10 + 90 + 900 below 1,000, and 4,000 of the 9,000 above.
    weight = [1.0 if number < 1000 else 4000 / 9000 for number in range(10_000)]
    best: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for number, row in enumerate(rows):
        bag = tuple(sorted(row))
        best[bag] = max(best[bag], weight[number])
    ceiling = find_ceiling(corpus, tokenizers)
    assert ceiling.share == pytest.approx(sum(best.values()) / 5000) and ceiling.low == ceiling.high
    assert ceiling.population == "exact, over all 10,000 numbers, each weighted by how often the corpus draws it"
    assert ceiling.share < 0.6


def test_tokens_that_know_their_place_raise_the_ceiling() -> None:
    corpus = open_corpus("numbers", largest=99_999, train=4000, validation=100, test=900, longer=0)
    morphemes, pairs_of_bytes = train_tokenizers(corpus), train_tokenizers(corpus, vocabulary=600)
    blind, seeing = find_ceiling(corpus, morphemes), find_ceiling(corpus, pairs_of_bytes)
    assert blind.high < 0.4 and seeing.low > 0.8
    assert seeing.population == "100 numbers drawn", "byte pairs cross from the thousands into the rest"


def test_without_a_population_the_test_split_is_it() -> None:
    twins = [Pair("Tom bit Ann", "1"), Pair("Ann bit Tom", "2")]
    corpus = Corpus("own", "translation", {"train": TEXT and twins * 3, "test": twins})
    ceiling = find_ceiling(corpus, train_tokenizers(corpus, kind="word"))
    assert (ceiling.share, ceiling.population) == (0.5, "the 2 pairs of the test split")
    untested = Corpus("own", "translation", {"train": twins * 3})
    assert find_ceiling(untested, train_tokenizers(corpus, kind="word")).population == "the 6 pairs of the train split"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [2, 5, 1000])
def test_a_language_model_sees_the_bag_of_what_stands_before(window: int, masked: bool) -> None:
    corpus = Corpus("own", "language modelling", {"train": TEXT, "validation": TEXT})
    tokenizers = train_tokenizers(corpus, kind="word")
    stream = encode_stream(tokenizers.source, TEXT).tolist()
    length = min(window, len(stream))
    answers: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for start in range(0, len(stream) - length + 1, length):
        ids = stream[start : start + length]
        for place in range(0 if masked else 1, length):
            seen = ids[:place] + ids[place + 1 :] if masked else ids[:place]
            answers[tuple(sorted(seen))][ids[place]] += 1
    right = sum(max(counts.values()) for counts in answers.values())
    ceiling = find_ceiling(corpus, tokenizers, window, masked=masked)
    assert ceiling.share == pytest.approx(right / sum(counts.total() for counts in answers.values()))
    assert ceiling.noun in ceiling.sentence and ("masked" in ceiling.noun) == masked


def test_the_windows_that_are_named_are_those_that_were_read() -> None:
    corpus = Corpus("own", "language modelling", {"train": ["a b a b"], "test": ["a b b a"]})
    tokens = 5  # four words, and the end of the text
    ceiling = find_ceiling(corpus, train_tokenizers(corpus, kind="word"), window=128)
    assert ceiling.population == f"{tokens} tokens of the test split in windows of {tokens}"


def test_nothing_to_read_is_said() -> None:
    corpus = Corpus("own", "language modelling", {"train": TEXT, "test": []})
    with pytest.raises(UsageError, match="at least two tokens"):
        find_ceiling(corpus, train_tokenizers(corpus, kind="word"))
