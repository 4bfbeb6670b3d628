"""Roles: roles are translated, twins share a split, and clauses are what a reader of the grammar makes of them."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise

import pytest

from clockhands.data import Corpus, find_ceiling, open_corpus, train_tokenizers
from clockhands.data.corpora.roles import ADJECTIVES, NAMES, NOUNS, PLACES, PREPOSITIONS, VERBS
from clockhands.errors import UsageError


@pytest.fixture(scope="module")
def roles() -> Corpus:
    return open_corpus("roles", train=2000, validation=100, test=400)


def test_every_role_swapped_twin_is_in_the_same_split(roles: Corpus) -> None:
    for split in roles:
        sources = set(roles.sources(split))
        for source in sources:
            agent, verb, patient = _parts(source)
            assert f"{patient} {verb} {agent}" in sources


def test_roles_translate_the_roles(roles: Corpus) -> None:
    esperanto = {**NAMES, **NOUNS}
    for pair in roles.pairs("test"):
        agent, verb, patient = _parts(pair.source)
        words = pair.target.split()
        at = words.index(VERBS[verb])
        assert words[at - 1] == esperanto[agent.split()[-1]]
        assert words[-1] == esperanto[patient.split()[-1]] + "n"
        assert not any(word.endswith("n") for word in words[:at])
        assert all(word.endswith("n") for word in words[at + 1 :] if word != "la")


def test_roles_splits_share_no_sentence_and_no_capital_tells_the_order(roles: Corpus) -> None:
    sources = [source for split in roles for source in roles.sources(split)]
    assert max(Counter(sources).values()) == 1
    assert not any(source.startswith(("A ", "An ", "The ")) for source in sources)


def test_a_reader_without_order_knows_less_the_more_clauses_there_are() -> None:
    """Of two participants and a verb at most half can be known; adjectives and articles make it less."""
    shares = []
    for options in ({"adjectives": 0.0}, {}, {"clauses": 0.5}):
        corpus = open_corpus("roles", train=400, validation=2, test=2, **options)
        shares.append(find_ceiling(corpus, train_tokenizers(corpus, kind="word")))
    assert shares[0].low > shares[1].share > shares[1].low > shares[2].high
    assert 0.4 < shares[1].share < 0.5 and shares[2].share < 0.3


def read_phrase(words: deque[str], ending: str) -> list[str]:
    """Read a participant from the front of an English text; return it in Esperanto."""
    if words[0] in NAMES:
        return [NAMES[words.popleft()] + ending]
    said = ["la"] if words.popleft() == "the" else []
    if words[0] in ADJECTIVES:
        said.append(ADJECTIVES[words.popleft()] + ending)
    said.append(NOUNS[words.popleft()] + ending)
    if words and words[0] in PREPOSITIONS:
        preposition, _, place = (words.popleft() for _ in range(3))
        said += [PREPOSITIONS[preposition], "la", PLACES[place]]
    if words and words[0] == "that":
        words.popleft()
        if words[0] in VERBS:
            said += ["kiu", VERBS[words.popleft()], *read_phrase(words, "n")]
        else:
            other = read_phrase(words, "")
            said += ["kiun", *other, VERBS[words.popleft()]]
    return said


def test_clauses_and_places_are_translated_as_a_reader_of_the_grammar_does() -> None:
    corpus = open_corpus("roles", train=600, validation=2, test=2, clauses=0.6, places=0.4, depth=2)
    pairs = corpus.pairs("train")
    for pair in pairs:
        words = deque(pair.source.split())
        agent = read_phrase(words, "")
        verb = VERBS[words.popleft()]
        assert " ".join([*agent, verb, *read_phrase(words, "n")]) == pair.target and not words
    assert sum(" kiu " in pair.target for pair in pairs) > 100 < sum(" kiun " in pair.target for pair in pairs)
    assert max(pair.source.count(" that ") for pair in pairs) == 4
    twins = Counter(pair.group for pair in pairs)
    assert set(twins.values()) == {2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 5}, "test=5; sentences come in twins"),
        ({"adjectives": 1.5}, "adjectives is 1.5, but must be from 0 to 1"),
        ({"train": 100_000, "adjectives": 0.0}, "there are not 101,500 different sentences"),
    ],
)
def test_roles_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_corpus("roles", **options)


def _parts(source: str) -> tuple[str, str, str]:
    """Agent, verb and patient of a sentence of roles."""
    words = source.split()
    at = next(number for number, word in enumerate(words) if word in VERBS)
    return " ".join(words[:at]), words[at], " ".join(words[at + 1 :])


def test_the_article_goes_by_the_word_after_it(roles: Corpus) -> None:
    """*an* before a vowel and nowhere else; *the* before everything."""
    sources = [source for split in roles for source in roles.sources(split)]
    followed = {tuple(pair) for source in sources for pair in pairwise(source.split()) if pair[0] in ("a", "an", "the")}
    assert {article for article, _ in followed} == {"a", "an", "the"}
    assert all((word[0] in "aeiou") == (article == "an") for article, word in followed if article != "the")
    assert any(word[0] in "aeiou" for article, word in followed if article == "the")
