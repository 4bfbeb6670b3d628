"""The order-blind ceiling of populations whose truth is counted by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from clockhands.data import Pair, open_corpus
from clockhands.data.corpora.numbers import numbers
from clockhands.data.corpora.roles import roles
from clockhands.data.population import Composed, Drawn, Listed
from clockhands.errors import UsageError
from clockhands.machine import measure_free_memory
from clockhands.reading import BYTES_A_LINE

LETTERS = np.random.default_rng(5).integers(0, 2**64, 256, dtype=np.uint64)


def letters(texts: Sequence[str]) -> np.ndarray:
    """Bags of letters: a letter is a token."""
    return np.array([sum((int(LETTERS[ord(c)]) for c in text), 0) % 2**64 for text in texts], np.uint64)


def whole_texts(texts: Sequence[str]) -> np.ndarray:
    """Bags of one token, the text itself: nothing of the order is lost."""
    return np.array([hash(text) % 2**64 for text in texts], np.uint64)


def test_a_bag_gets_its_most_frequent_answer() -> None:
    # A bag with three readings of which one occurs twice, and a bag with one: (2 + 1) of 5.
    pairs = [Pair("abc", "1"), Pair("cba", "1"), Pair("bac", "2"), Pair("cab", "3"), Pair("aab", "4")]
    ceiling = Listed(pairs, "five pairs").measure(letters)
    assert (ceiling.share, ceiling.low, ceiling.high) == (3 / 5, 3 / 5, 3 / 5)
    assert ceiling.sentence == (
        "A model that ignores word order can get at most 60.0 % of these items right (five pairs)."
    )
    assert Listed(pairs, "").measure(whole_texts).share == 1, "a token that holds the order gives it away"
    with pytest.raises(UsageError, match="at least one pair"):
        Listed([], "").measure(letters)


@pytest.mark.parametrize(("answer", "share"), [("".join, 1 / 24), (sorted, 1.0), (lambda order: order[0], 1 / 4)])
def test_drawn_items_stand_for_all(answer: object, share: float) -> None:
    """Every order another answer, every order the same answer, and the answer that is the first of four letters."""

    def make(order: Sequence[str]) -> Pair:
        return Pair("".join(order), "".join(answer(order)))  # type: ignore[operator]

    def draw(rng: random.Random) -> tuple[Pair, list[Pair]]:
        chosen = rng.sample("abcdefgh", 4)
        return make(chosen), [make(order) for order in permutations(chosen)]

    ceiling = Drawn(draw, "words", 50).measure(letters)
    assert ceiling.share == pytest.approx(share) and ceiling.low == pytest.approx(ceiling.high)
    assert Drawn(draw, "words", 50).measure(whole_texts).share == 1


def test_what_was_drawn_has_an_interval() -> None:
    """Half of the words are of two letters (1/2), half of one letter twice (1)."""

    def draw(rng: random.Random) -> tuple[Pair, list[Pair]]:
        word = rng.choice(("ab", "aa"))
        return Pair(word, word), [Pair(other, other) for other in sorted({word, word[::-1]})]

    ceiling = Drawn(draw, "words", 400).measure(letters)
    # The standard error is 0.25 / 20; the interval is twice that on both sides.
    assert ceiling.low < 0.75 < ceiling.high and ceiling.high - ceiling.low == pytest.approx(4 * 0.25 / 20, rel=0.05)
    assert f"(400 words drawn; 95 % interval {100 * ceiling.low:.1f} to {100 * ceiling.high:.1f})" in ceiling.sentence


def composed(whole: object) -> Composed:
    weights = np.array([1, 1, 1, 2, 3, 4, 5, 6, 7], float)
    return Composed(["x", "y", "z"], ["a", "b", ""], ["a", "b"], weights, whole, "nine texts")  # type: ignore[arg-type]


def test_heads_and_tails_are_put_together() -> None:
    texts = ["x", "y", "z", "aa", "ab", "ba", "bb", "a", "b"]
    ceiling = composed(lambda item: texts[item]).measure(letters)
    # "ab" and "ba" share a bag, of weight 3 and 4 out of 30: 3 cannot be had.
    assert ceiling is not None and ceiling.share == pytest.approx(27 / 30)


def test_texts_that_are_more_than_their_parts_are_not_put_together() -> None:
    texts = ["x", "y", "z", "aa", "ab", "ba", "bb", "a", "b"]
    assert composed(lambda item: texts[item] + "!").measure(letters) is None
    assert composed(lambda item: texts[item]).measure(whole_texts) is None, "a token crosses the cut"


def test_sentences_that_do_not_fit_are_refused_before_they_are_made() -> None:
    count = 2 * (measure_free_memory() // BYTES_A_LINE)
    with pytest.raises(
        UsageError, match=rf"corpus 'numbers': train={count:,} sentences need .* are free; ask for fewer"
    ):
        numbers(largest=10**12 - 1, train=count)
    with pytest.raises(UsageError, match=rf"corpus 'roles': test={count:,} sentences need"):
        roles(test=count)
    with pytest.raises(UsageError, match="corpus 'numbers': longer=600,000,000,000 sentences"):
        numbers(longer=200_000_000_000)


def test_fewer_longer_numbers_than_none_are_refused() -> None:
    with pytest.raises(UsageError, match="longer is -1, but must be at least 0"):
        open_corpus("numbers", longer=-1)


def test_of_text_whose_every_bag_of_words_stands_there_once_nothing_is_bounded() -> None:
    text = [Pair(f"word {number}", str(number)) for number in range(200)]
    said = Listed(text, "200 pairs").measure(whole_texts).sentence
    assert "at most" not in said and "could get nearly all of these items right (200 pairs)" in said
    swapped = [Pair("ab", "1"), Pair("ba", "2")]
    assert "at most 50.0 % of these items right" in Listed(swapped, "2 pairs").measure(letters).sentence
