"""Who did what to whom: English that says it by word order, Esperanto that says it by an ending.

"Tom bit a dog" and "a dog bit Tom" hold the same words. Their translations differ, "Tomo mordis hundon" and "hundo
mordis Tomon": the ending -n marks the one to whom it was done. Every sentence has its role-swapped twin in the same
split, so a reader that sees the words without their order is right at most half the time. Relative clauses make it
harder: "a dog that saw Tom" and "a dog that Tom saw", "hundo kiu vidis Tomon" and "hundo kiun Tomo vidis"; and a
place beside a noun ("a dog near the river bit Tom") moves who acts away from what is done.
Sentences start in lower case, or else the capital of "A" would give the order away.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from clockhands.data.catalogue import corpus
from clockhands.data.corpora.roles.grammar import Grammar
from clockhands.data.population import Drawn, Pair, check_sentences
from clockhands.data.splits import Corpus
from clockhands.errors import UsageError
from clockhands.options import Count, Fraction, Seed

__all__ = ["PATIENCE", "roles"]

PATIENCE = 1000
"""Drawing stops after this many draws in a row that gave no new sentence: there are hardly any left."""


@corpus("roles", "translation", one_answer=True)
def roles(
    *,
    train: int = 10_000,
    validation: int = 500,
    test: int = 1_000,
    adjectives: Fraction = 0.3,
    places: Fraction = 0.0,
    clauses: Fraction = 0.0,
    depth: Count = 1,
    seed: Seed = 0,
) -> Corpus:
    """Make sentences of one verb and two participants, each beside its role-swapped twin.

    ``train``, ``validation`` and ``test`` count sentences and are even; no sentence is in two splits. Twins share the
    ``group`` of their pairs. ``adjectives``, ``places`` and ``clauses`` are the shares of nouns that carry one; an
    adjective agrees with its noun, so a reader without order does not know whom it describes either. Clauses stand
    inside one another up to ``depth``.
    Raises UsageError for an odd or impossible size.
    """
    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        if size < 2 or size % 2:
            raise UsageError(f"corpus 'roles': {name}={size}; sentences come in twins, give an even number from 2 on")
    check_sentences("roles", sizes)
    harder = f":{places}:{clauses}:{depth}" if places or clauses else ""
    key = f"roles:{adjectives}:{seed}{harder}"
    rng = random.Random(key)
    grammar = Grammar(adjectives, places, clauses, depth)
    twins = _draw_twins(sum(sizes.values()) // 2, grammar, rng)
    splits: dict[str, list[Pair]] = {}
    for name, size in sizes.items():
        splits[name] = _number_twins([twins.pop() for _ in range(size // 2)], rng)
    held_out = frozenset(pair.source for name in ("validation", "test") for pair in splits[name])
    redraw = partial(_redraw, train // 2, grammar, key, held_out)
    inside = ", with clauses" if clauses else ""
    description = f"who did what to whom, English to Esperanto{inside}; each sentence beside its role-swapped twin"
    populations = (Drawn(partial(grammar.draw_with_rearranged), "sentences"),)
    return Corpus("roles", "translation", splits, description, populations=populations, redraw=redraw)


def _redraw(count: int, grammar: Grammar, key: str, held_out: frozenset[str], number: int) -> list[Pair]:
    """Return ``count`` other sentences to train on with their twins, none of them ``held_out``; a number decides."""
    rng = random.Random(f"{key}:redrawn:{number}")
    return _number_twins(_draw_twins(count, grammar, rng, held_out), rng)


def _number_twins(twins: Sequence[tuple[Pair, Pair]], rng: random.Random) -> list[Pair]:
    """Return the sentences in random order; twins share a group."""
    pairs = [replace(sentence, group=number) for number, twin in enumerate(twins) for sentence in twin]
    rng.shuffle(pairs)
    return pairs


def _draw_twins(
    count: int, grammar: Grammar, rng: random.Random, held_out: frozenset[str] = frozenset()
) -> list[tuple[Pair, Pair]]:
    """Draw ``count`` different sentences with their twins; no two of them are the same set of sentences.

    None is ``held_out``.
    """
    drawn: dict[frozenset[str], tuple[Pair, Pair]] = {}
    misses = 0
    while len(drawn) < count and misses < PATIENCE:
        sentence = grammar.draw(rng)
        twin = sentence.to_pair(), sentence.swapped.to_pair()
        key = frozenset(pair.source for pair in twin)
        kept = key.isdisjoint(held_out)
        misses = 0 if kept and key not in drawn else misses + 1
        if kept:
            drawn[key] = twin
    if len(drawn) == count:
        return list(drawn.values())
    raise UsageError(
        f"corpus 'roles': there are not {2 * count:,} different sentences with adjectives={grammar.adjectives} "
        f"(only {2 * len(drawn):,} were found); ask for fewer or for more adjectives"
    )
