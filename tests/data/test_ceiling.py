"""The order-blind ceiling of corpora, against what is counted here once more without the package."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from clockhands.data import Corpus, Pair, encode_stream, encode_texts, find_ceiling, open_corpus, train_tokenizers
from clockhands.errors import UsageError

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
