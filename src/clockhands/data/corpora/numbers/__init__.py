"""Spelled-out numbers, translated between real languages: a real task with exactly one right answer.

German says tens and units the other way round ("dreiundzwanzig", three-and-twenty), so a translator that does not
know the order of what it reads cannot do it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from typing import Annotated

from clockhands.data.catalogue import corpus
from clockhands.data.corpora.numbers.populations import (
    draw_other_numbers,
    list_languages,
    list_morphemes,
    make_pair,
    make_populations,
    plan_quotas,
)
from clockhands.data.population import Pair, check_sentences
from clockhands.data.splits import Corpus, Fact, Items, Made
from clockhands.errors import UsageError, describe_unknown
from clockhands.options import Count, Range, Seed

__all__ = ["BEYOND_DRAWS", "numbers"]

BEYOND_DRAWS = 1_000_000
"""How many numbers are drawn at most to fill a split of longer ones."""


@corpus("numbers", "translation", one_answer=True, tokenizer="morpheme")
def numbers(
    *,
    source: str = "de",
    target: str = "en",
    largest: Annotated[int, Range(least=9, most=999_999_999_999)] = 999_999,
    train: Count = 20_000,
    validation: Count = 500,
    test: Count = 1_000,
    longer: Annotated[int, Range(least=0)] = 200,
    seed: Seed = 0,
) -> Corpus:
    """Make numbers from 0 to ``largest``, drawn evenly over their count of digits, written out by ``num2words``.

    ``source`` and ``target`` are languages as num2words names them; ``train``, ``validation`` and ``test`` are
    sizes of splits that share no number. ``longer`` is the size of each of three further splits, named
    ``longer-7`` and so on by their digits: every number in them is longer, on both sides, than the drawn numbers of
    ``train``; a split is smaller where fewer such numbers are found. Training also sees the round ones (two million),
    so that no word in them is new: what they test is length. 0 leaves them out.

    Where no tokenizer is asked for, the texts are cut into the morphemes of the number words: from German to English
    a number up to 999,999 is about 7.8 tokens on average as drawn, and at most 11.

    Raises UsageError for a language that num2words does not know or cannot count so far in, and for splits larger
    than the range or than the memory.
    """
    _check(source, target, largest, {"train": train, "validation": validation, "test": test}, longer)
    rng = random.Random(f"numbers:{largest}:{train}:{validation}:{test}:{seed}")
    chosen = _draw(largest, train + validation + test, rng)
    spell = partial(make_pair, source=source, target=target)
    digits = range(len(str(largest)) + 1, len(str(largest)) + 4)
    rounds = _round(largest, digits[-1]) if longer else []
    parts = {
        "train": [*chosen[:train], *rounds],
        "validation": chosen[train : train + validation],
        "test": chosen[train + validation :],
    }
    splits: dict[str, Items] = {name: Made(partial(list, numbers), spell) for name, numbers in parts.items()}

    @cache
    def measure() -> tuple[int, int]:
        """Return the characters of the longest source and of the longest target that are drawn for training."""
        pairs = [spell(number) for number in chosen[:train]]
        return max(len(pair.source) for pair in pairs), max(len(pair.target) for pair in pairs)

    @cache
    def draw_longer() -> dict[int, list[Pair]]:
        """Draw the splits of longer numbers by their digits, one after the other."""
        return {count: list(islice(_draw_beyond(count, measure(), source, target, rng), longer)) for count in digits}

    for count in digits if longer else ():
        splits[f"longer-{count}"] = Made(partial(lambda count: draw_longer()[count], count), lambda pair: pair)
    facts: dict[str, Fact] = {
        "source language": source,
        "target language": target,
        "largest number trained on": largest,
    }
    description = f"numbers from 0 to {largest:,} written out, {source} to {target}"
    morphemes = partial(list_morphemes, source, target, len(str(largest)) + 3)
    populations = make_populations(source, target, largest, train + validation + test)
    redraw = partial(
        draw_other_numbers, largest=largest, trained=chosen[:train], held_out=frozenset(chosen[train:]),
        measure=measure if longer else None, spell=spell, rounds=rounds, seed=seed,
    )  # fmt: skip
    return Corpus("numbers", "translation", splits, description, facts, morphemes, populations, redraw)


def _check(source: str, target: str, largest: int, sizes: dict[str, int], longer: int) -> None:
    languages = list_languages()
    for language in (source, target):
        if language not in languages:
            raise UsageError(f"corpus 'numbers': {describe_unknown('language', language, languages)}")
    if sum(sizes.values()) > largest + 1:
        total = sum(sizes.values())
        raise UsageError(
            f"corpus 'numbers': the splits ask for {total:,} numbers, and from 0 to {largest:,} there are "
            f"{largest + 1:,}; ask for fewer or raise 'largest'"
        )
    check_sentences("numbers", {**sizes, "longer": 3 * longer})


def _draw(largest: int, total: int, rng: random.Random) -> list[int]:
    """Draw ``total`` different numbers in random order: as near as may be equally many of every count of digits."""
    chosen = [
        number for start, end, quota in plan_quotas(largest, total) for number in rng.sample(range(start, end), quota)
    ]
    rng.shuffle(chosen)
    return chosen


def _round(largest: int, digits: int) -> list[int]:
    """Return round numbers above ``largest`` and below 10^digits, such as three million and seventeen million."""
    tens = {count * 10**power for power in range(1, digits) for count in range(1, 10)}
    thousands = {count * 1000**power for power in range(1, 5) for count in (*range(10, 20), *range(20, 1000, 7))}
    return sorted(number for number in tens | thousands if largest < number < 10**digits)


def _draw_beyond(count: int, bounds: tuple[int, int], source: str, target: str, rng: random.Random) -> Iterator[Pair]:
    """Yield different numbers of ``count`` digits whose two spellings are longer than the two ``bounds``."""
    tried: set[int] = set()
    for _ in range(BEYOND_DRAWS):
        number = rng.randrange(10 ** (count - 1), 10**count)
        if number in tried:
            continue
        tried.add(number)
        pair = make_pair(number, source, target)
        if len(pair.source) > bounds[0] and len(pair.target) > bounds[1]:
            yield pair
