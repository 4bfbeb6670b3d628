"""A name has one value within a document, and others in others."""

import re

import pytest

from clockhands.data import open_corpus
from clockhands.data.corpora.facts import NAMES, VALUES
from clockhands.errors import UsageError


def test_the_facts_of_a_document_agree() -> None:
    corpus = open_corpus("facts", train=30, validation=3, test=3, names=5, lines=80, asked=0.5)
    told = []
    for document in corpus["train"]:
        found = re.findall(r"^@ (\w+) (\w+)$", document, re.M)
        assert 20 < len(found) < 60 and document.count("\n") == 80
        values = dict(found)
        assert all(values[name] == value for name, value in found)
        assert len(values) <= 5 and set(values) <= set(NAMES) and set(values.values()) <= set(VALUES)
        told.append(values)
    both = {name for values in told for name in values if sum(name in other for other in told) > 1}
    assert any(len({values[name] for values in told if name in values}) > 1 for name in both)
    assert not set(corpus["train"]) & set(corpus["test"])


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(UsageError, match="names=41; there are 40"):
        open_corpus("facts", names=41)
    with pytest.raises(UsageError, match="names=5 must be from fewest=6 to words=40"):
        open_corpus("facts", names=5, fewest=6)
    with pytest.raises(UsageError, match=r"asked is 2\.0, but must be from 0 to 1"):
        open_corpus("facts", asked=2)


def test_few_words_serve_and_a_name_is_told_again_after_its_value() -> None:
    corpus = open_corpus(
        "facts", train=30, validation=3, test=3, names=3, fewest=1, words=4, repeated=True, lines=20, asked=0.9
    )
    counts = set()
    for document in corpus["train"]:
        told = re.findall(r"^@ (\w+) (\w+) (\w+)$", document, re.M)
        assert all(first == again for first, _, again in told)
        assert {name for name, _, _ in told} <= set(NAMES[:4]) and {value for _, value, _ in told} <= set(VALUES[:4])
        counts.add(len({name for name, _, _ in told}))
    assert counts == {1, 2, 3}
