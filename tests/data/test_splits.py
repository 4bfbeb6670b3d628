"""A corpus says which splits it has and what they hold."""

from __future__ import annotations

import pytest

from clockhands.data import Corpus, open_corpus
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
