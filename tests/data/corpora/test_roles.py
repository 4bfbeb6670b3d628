"""Roles: who did what to whom is translated, twins share a split, and the ceiling is what it is said to be."""

from __future__ import annotations

from collections import Counter

import pytest

from clockhands.data import Corpus, Pair, open_corpus, order_blind_ceiling
from clockhands.data.corpora.roles import NAMES, NOUNS, VERBS
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


def test_the_order_blind_ceiling_of_hand_made_pairs() -> None:
    twins = [Pair("Tom bit Ann", "1"), Pair("Ann bit Tom", "2")]
    assert order_blind_ceiling(twins) == 0.5
    # A bag with three readings of which one occurs twice, and a bag with one: (2 + 1) of 5.
    pairs = [Pair("a b c", "1"), Pair("c b a", "1"), Pair("b a c", "2"), Pair("c a b", "3"), Pair("a a b", "4")]
    assert order_blind_ceiling(pairs) == 3 / 5
    with pytest.raises(UsageError, match="at least one pair"):
        order_blind_ceiling([])


def test_roles_state_their_ceiling(roles: Corpus) -> None:
    stated = roles.facts["order-blind ceiling, test"]
    assert stated == order_blind_ceiling(roles.pairs("test"))
    assert 0.4 < float(stated) <= 0.5
    assert f"{stated:.1%}" in roles.description


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 5}, "test=5; sentences come in twins"),
        ({"adjectives": 1.5}, "adjectives=1.5 is a share"),
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
