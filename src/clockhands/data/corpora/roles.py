"""Who did what to whom: English that says it by word order, Esperanto that says it by an ending.

"Tom bit a dog" and "a dog bit Tom" hold the same words. Their translations differ, "Tomo mordis hundon" and "hundo
mordis Tomon": the ending -n marks the one to whom it was done. Every sentence has its role-swapped twin in the same
split, so a reader that sees the words without their order is right at most as often as ``order_blind_ceiling`` says.
Sentences start in lower case, or else the capital of "A" would give the order away.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from clockhands.data.catalogue import corpus
from clockhands.data.pairs import Corpus, Fact, Pair
from clockhands.data.room import check_sentences
from clockhands.errors import UsageError
from clockhands.options import Seed

NAMES = {
    "Tom": "Tomo", "Anna": "Anna", "Peter": "Petro", "Maria": "Maria",
    "Paul": "Paŭlo", "Eva": "Eva", "Karl": "Karlo", "Sofia": "Sofia",
}  # fmt: skip
NOUNS = {
    "dog": "hundo", "cat": "kato", "horse": "ĉevalo", "wolf": "lupo", "bear": "urso", "bird": "birdo",
    "child": "infano", "teacher": "instruisto", "doctor": "kuracisto", "farmer": "farmisto", "sailor": "maristo",
    "baker": "bakisto", "king": "reĝo", "queen": "reĝino", "neighbour": "najbaro", "poet": "poeto",
}  # fmt: skip
ADJECTIVES = {"big": "granda", "small": "malgranda", "old": "maljuna", "young": "juna", "tired": "laca"}
VERBS = {
    "bit": "mordis", "saw": "vidis", "chased": "ĉasis", "helped": "helpis", "found": "trovis", "heard": "aŭdis",
    "called": "vokis", "followed": "sekvis", "loved": "amis", "kissed": "kisis", "painted": "pentris",
    "carried": "portis", "pushed": "puŝis", "watched": "rigardis", "admired": "admiris", "forgot": "forgesis",
}  # fmt: skip

Phrase: TypeAlias = tuple[str, str, str]
"""English, Esperanto as the one who acts, Esperanto as the one to whom it is done."""

PATIENCE = 1000
"""So many draws in a row that bring nothing new mean that there is hardly anything new left."""


@corpus("roles", "translation", one_answer=True)
def roles(
    *, train: int = 10_000, validation: int = 500, test: int = 1_000, adjectives: float = 0.3, seed: Seed = 0
) -> Corpus:
    """Make sentences of one verb and two participants, each beside its role-swapped twin.

    ``train``, ``validation`` and ``test`` count sentences and are even; no sentence is in two splits. Twins share the
    ``group`` of their pairs.
    ``adjectives`` is the share of nouns that carry one: they agree with their noun, so a reader without order does
    not know whom they describe either. ``facts`` states the order-blind ceiling of each split.
    Raises UsageError for an odd or impossible size, or a share outside 0 to 1.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        if size < 2 or size % 2:
            raise UsageError(f"corpus 'roles': {name}={size}; sentences come in twins, give an even number from 2 on")
    check_sentences("roles", sizes)
    if not 0 <= adjectives <= 1:
        raise UsageError(f"corpus 'roles': adjectives={adjectives} is a share, from 0 to 1")
    rng = random.Random(f"roles:{adjectives}:{seed}")
    twins = _twins(sum(sizes.values()) // 2, adjectives, rng)
    splits: dict[str, list[Pair]] = {}
    for name, size in sizes.items():
        splits[name] = [replace(sentence, group=number) for number in range(size // 2) for sentence in twins.pop()]
        rng.shuffle(splits[name])
    facts: dict[str, Fact] = {
        f"order-blind ceiling, {name}": order_blind_ceiling(pairs) for name, pairs in splits.items()
    }
    ceiling = facts["order-blind ceiling, test"]
    description = f"who did what to whom, English to Esperanto; without word order at most {ceiling:.1%} of test"
    return Corpus("roles", "translation", splits, description, facts)


def order_blind_ceiling(pairs: Iterable[Pair]) -> float:
    """Return the largest share of ``pairs`` that a reader of unordered words can get exactly right, from 0 to 1.

    All sources with the same bag of words look the same to it, so it gives them one translation: at best the most
    frequent one among them. Raises UsageError without pairs.
    """
    readings: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        readings[tuple(sorted(pair.source.split()))][pair.target] += 1
    if not readings:
        raise UsageError("the order-blind ceiling needs at least one pair")
    right = sum(max(targets.values()) for targets in readings.values())
    return right / sum(targets.total() for targets in readings.values())


def _twins(count: int, adjectives: float, rng: random.Random) -> list[tuple[Pair, Pair]]:
    """Draw ``count`` different sentences with their twins; no two of them are the same set of sentences."""
    found: dict[frozenset[str], tuple[Pair, Pair]] = {}
    misses = 0
    while len(found) < count and misses < PATIENCE:
        verb = rng.choice(sorted(VERBS))
        one, other = _phrase(adjectives, rng), _phrase(adjectives, rng)
        if one[0].split()[-1] == other[0].split()[-1]:
            continue
        twin = _sentence(one, verb, other), _sentence(other, verb, one)
        key = frozenset(pair.source for pair in twin)
        misses = misses + 1 if key in found else 0
        found[key] = twin
    if len(found) == count:
        return list(found.values())
    raise UsageError(
        f"corpus 'roles': there are not {2 * count:,} different sentences with adjectives={adjectives} "
        f"(only {2 * len(found):,} were found); ask for fewer or for more adjectives"
    )


def _phrase(adjectives: float, rng: random.Random) -> Phrase:
    if rng.random() < 0.4:
        name = rng.choice(sorted(NAMES))
        return name, NAMES[name], NAMES[name] + "n"
    noun, article = rng.choice(sorted(NOUNS)), rng.choice(("a", "the"))
    esperanto_article = "la " if article == "the" else ""
    if rng.random() < adjectives:
        adjective = rng.choice(sorted(ADJECTIVES))
        acting = f"{ADJECTIVES[adjective]} {NOUNS[noun]}"
        undergoing = f"{ADJECTIVES[adjective]}n {NOUNS[noun]}n"
        # "an old dog", "a big dog": the article goes by the word after it.
        written = f"{_article(article, adjective)} {adjective} {noun}"
    else:
        acting, undergoing, written = NOUNS[noun], NOUNS[noun] + "n", f"{article} {noun}"
    return written, esperanto_article + acting, esperanto_article + undergoing


def _article(article: str, following: str) -> str:
    return "an" if article == "a" and following[0] in "aeiou" else article


def _sentence(agent: Phrase, verb: str, patient: Phrase) -> Pair:
    return Pair(f"{agent[0]} {verb} {patient[0]}", f"{agent[1]} {VERBS[verb]} {patient[2]}")
