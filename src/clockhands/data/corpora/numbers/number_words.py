"""Number words: written by num2words, and the morphemes found from the words themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from functools import cache, lru_cache
from typing import Any, cast

from clockhands.data.morphemes import Morphemes, find_roots
from clockhands.data.pairs import Pair
from clockhands.errors import UsageError

__all__ = ["FAULTS", "list_languages", "list_morphemes", "make_pair", "spell"]

FAULTS = (NotImplementedError, OverflowError, LookupError, ValueError, TypeError)
"""What num2words raises for numbers that a language of its cannot write."""
KEPT = 2**16
"""How many spelled numbers are kept: the corpus is opened anew for each run that a process trains."""


def list_languages() -> Mapping[str, Any]:
    """Return what writes numbers, by language; only who asks for numbers imports the package."""
    from num2words import CONVERTER_CLASSES

    return cast(Mapping[str, Any], CONVERTER_CLASSES)


def make_pair(number: int, source: str, target: str) -> Pair:
    """Return a number in both languages. Raises UsageError where one of them does not reach that far."""
    return Pair(spell(number, source), spell(number, target))


@lru_cache(KEPT)
def spell(number: int, language: str) -> str:
    """Spell a number as ``num2words`` does. Raises UsageError where the language does not reach that far."""
    try:
        return str(_get_converter(language).to_cardinal(number))
    except FAULTS as fault:
        raise UsageError(f"num2words cannot write {number:,} in language {language!r}: {fault}") from fault


@cache
def _get_converter(language: str) -> Any:
    """Return the language's converter, without the names of powers above the trillions.

    num2words looks through all of them, up to 10^600, for every number, which takes three quarters of its time.
    """
    converter = copy(list_languages()[language])
    if hasattr(converter, "cards"):
        kept = [(power, word) for power, word in converter.cards.items() if power < 10**15]
        converter.cards = type(converter.cards)(kept)
    return converter


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
