"""A corpus says which splits it has and what they hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clockhands.data import Corpus, Pair, open_corpus
from clockhands.data.corpora.numbers import spell
from clockhands.data.splits import FEWEST_ITEMS, redraw_training
from clockhands.errors import UsageError


@pytest.fixture(scope="module")
def roles() -> Corpus:
    return open_corpus("roles", train=2000, validation=100, test=400)


def test_a_corpus_says_what_it_holds(roles: Corpus) -> None:
    with pytest.raises(UsageError, match="unknown split 'valid'; did you mean 'validation'"):
        roles["valid"]
    with pytest.raises(UsageError, match="is for translation; this needs one that holds documents"):
        roles.documents("train")
    assert roles.texts("test") == roles.sources("test") + roles.targets("test")


MADE: list[tuple[str, dict[str, Any]]] = [
    ("numbers", {"train": 400, "validation": 40, "test": 40, "longer": 5}),
    ("numbers", {"train": 500, "validation": 50, "test": 50, "largest": 999, "longer": 0}),
    ("roles", {"train": 100, "validation": 20, "test": 20}),
    ("algorithms", {"train": 300, "validation": 20, "test": 20, "longer": 5}),
]


@pytest.mark.parametrize(("name", "options"), MADE, ids=["numbers", "few numbers", "roles", "algorithms"])
def test_made_text_is_drawn_anew_without_what_is_held_out(name: str, options: dict[str, Any]) -> None:
    corpus = open_corpus(name, **options)
    first, second = (redraw_training(corpus, number) for number in (1, 2))
    assert len(first) == len(second) == len(corpus["train"])
    assert redraw_training(corpus, 1) == first
    assert len({tuple(corpus["train"]), tuple(first), tuple(second)}) == 3
    held_out = {pair.source for split in ("validation", "test") for pair in corpus.pairs(split)}
    assert held_out and not held_out & {pair.source for pair in first if isinstance(pair, Pair)}


def test_other_numbers_have_as_many_digits_and_are_no_longer_than_the_first() -> None:
    """Of 900 numbers of three digits 240 are trained on, so that a draw has most of them from the others."""
    corpus = open_corpus("numbers", train=300, validation=20, test=20, largest=999, longer=5)
    digits = {spell(number, "de"): len(str(number)) for number in range(1000)}
    first, other = corpus.pairs("train"), _redraw(corpus)
    counts = [Counter(digits.get(pair.source, 0) for pair in pairs) for pairs in (first, other)]
    assert counts[0] == counts[1] and counts[0][3] > 150
    drawn = {pair.source for pair in other if pair.source in digits}
    assert len(drawn & {pair.source for pair in first}) < 200
    assert max(map(len, drawn)) < min(len(pair.source) for pair in corpus.pairs("longer-4"))


def _redraw(corpus: Corpus) -> list[Pair]:
    return [pair for pair in redraw_training(corpus, 3) if isinstance(pair, Pair)]


def test_twins_stay_together() -> None:
    corpus = open_corpus("roles", train=60, validation=20, test=20)
    groups = Counter(pair.group for pair in _redraw(corpus))
    assert len(groups) == 30 and set(groups.values()) == {2}


def test_the_library_has_other_files_of_the_same_size_and_none_that_is_tested() -> None:
    corpus = open_corpus("stdlib", limit=300_000, validation=0.2, test=0.2)
    first, second = ([text for text in redraw_training(corpus, number) if isinstance(text, str)] for number in (1, 2))
    wanted = sum(map(len, corpus.documents("train")))
    assert sum(map(len, first)) == sum(map(len, second)) == wanted and first != second
    held_out = {*corpus.documents("validation"), *corpus.documents("test")}
    assert not held_out & {*first, *second}


def test_given_text_is_drawn_with_replacement() -> None:
    """Of n items drawn n times, 1 - 1/e are expected: 632 of 1,000, with a standard deviation of about 10."""
    corpus = Corpus("text", "language modelling", {"train": [f"line {n}" for n in range(1000)], "test": ["other"]})
    first = redraw_training(corpus, 1)
    assert len(first) == 1000 and set(first) < {*corpus["train"]}
    assert 590 < len(set(first)) < 675
    assert redraw_training(corpus, 1) == first != redraw_training(corpus, 2)


def test_too_few_documents_cannot_be_drawn_anew() -> None:
    corpus = Corpus("text", "language modelling", {"train": ["one long book"] * (FEWEST_ITEMS - 1)})
    with pytest.raises(UsageError, match="'text' has 19 documents to train on, too few"):
        redraw_training(corpus, 1)
