"""The morphemes of number words, found from the words themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from clockhands.data.corpora.numbers.spelling import spell
from clockhands.data.morphemes import Morphemes, find_roots
from clockhands.errors import UsageError

__all__ = ["list_morphemes"]


def list_morphemes(source: str, target: str, digits: int) -> tuple[Morphemes, Morphemes]:
    """List the morphemes of number words of at most ``digits`` digits in both languages, from the words themselves."""
    return _list_morphemes(source, digits), _list_morphemes(target, digits)


@cache
def _list_morphemes(language: str, digits: int) -> Morphemes:
    """List the morphemes of a language: the words of 0 to 19 and of the tens, and what other numbers have between."""
    texts = tuple(dict.fromkeys(_spell_known(_draw_samples(digits), language)))
    tens = _spell_known((*range(20), *range(20, 100, 10)), language)
    return Morphemes(find_roots(texts, {word for text in tens for word in re.findall(r"\w+", text)}), texts)


def _draw_samples(digits: int) -> list[int]:
    """Return numbers in which every morpheme stands beside whatever it can stand beside: all below 1000, and of each
    larger power of 1000 its multiples and what follows it."""
    low, high = (*range(1, 121), *range(200, 1000, 100)), (321, 999)
    powers = [1000**power for power in range(1, -(-digits // 3))]
    above = [times * power for power in powers for times in (*low, *high)]
    after = [times * power + rest for power in powers for times in (1, 2, 5) for rest in (*low, *high, power // 10)]
    below = [2 * power + times * (power // 1000) for power in powers[1:] for times in (*low, *high)]
    return sorted(number for number in {*range(1000), *above, *after, *below} if number < 10**digits)


def _spell_known(numbers: Iterable[int], language: str) -> list[str]:
    """Spell the numbers that the language reaches."""
    spelled = []
    for number in numbers:
        try:
            spelled.append(spell(number, language))
        except UsageError:
            continue  # What it cannot spell, no split holds either.
    return spelled
