"""Write numbers out in words, as num2words does."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cache, lru_cache
from typing import Any, cast

from clockhands.data.pairs import Pair
from clockhands.errors import UsageError

__all__ = ["FAULTS", "list_languages", "make_pair", "spell"]

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
