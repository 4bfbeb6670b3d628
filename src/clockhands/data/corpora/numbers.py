"""Spelled-out numbers, translated between real languages: a real task with exactly one right answer.

German says tens and units the other way round ("dreiundzwanzig", three-and-twenty), so a translator that does not
know the order of what it reads cannot do it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Annotated, Any, cast

import numpy as np

from clockhands.data.kinds import Morphemes, find_roots
from clockhands.data.population import Bags, Ceiling, Composed, Drawn, Pair, Population, check_sentences, permute
from clockhands.data.splits import Corpus, Fact, Items, Made, corpus
from clockhands.errors import UsageError, describe_unknown
from clockhands.options import Count, Range, Seed

FAULTS = (NotImplementedError, OverflowError, LookupError, ValueError, TypeError)
"""What num2words raises for numbers that a language of its cannot write."""
KEPT = 2**16
"""How many spelled numbers are kept: the corpus is opened anew for each run that a process trains."""


def _list_languages() -> Mapping[str, Any]:
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
    converter = copy(_list_languages()[language])
    if hasattr(converter, "cards"):
        kept = [(power, word) for power, word in converter.cards.items() if power < 10**15]
        converter.cards = type(converter.cards)(kept)
    return converter


@cache
def _list_morphemes(language: str, digits: int) -> Morphemes:
    """List the morphemes of number words of at most ``digits`` digits, from the words themselves: those of 0 to 19 and
    of the tens, and what other numbers have between."""
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
    spelled = []
    for number in numbers:
        try:
            spelled.append(spell(number, language))
        except UsageError:
            continue  # What it cannot spell, no split holds either.
    return spelled


DRAWN, REARRANGED = 100, 60
"""How many numbers are drawn where not all can be listed, and how many orders of the digits of each."""


@dataclass(frozen=True)
class _Spelled:
    """All numbers below a million, each the words of its thousands and those of the rest."""

    quotas: list[tuple[int, int, int]]
    source: str
    largest: int

    def measure(self, bags: Bags) -> Ceiling | None:
        """Return the exact ceiling; None where words or tokens of a number are not those of its halves."""
        weights_N = np.concatenate([np.full(end - start, quota / (end - start)) for start, end, quota in self.quotas])
        thousands = range(1, max(self.largest // 1000, 1) + 1)
        thousand = spell(1000, self.source)
        followed = [spell(1000 + rest, self.source) for rest in range(1000)]
        if not all(text.startswith(thousand) for text in followed):
            return None
        return Composed(
            alone=[spell(number, self.source) for number in range(1000)],
            heads=[spell(1000 * count, self.source) for count in thousands],
            tails=[text.removeprefix(thousand) for text in followed],
            weights_N=weights_N,
            whole=partial(spell, language=self.source),
            description=f"exact, over all {self.largest + 1:,} numbers, each weighted by how often the corpus draws it",
        ).measure(bags)


def _draw_with_rearranged(
    quotas: list[tuple[int, int, int]], source: str, target: str, rng: random.Random
) -> tuple[Pair, list[Pair]]:
    """Draw a number, and with it those of as many digits that have its tens and its other digits in another order."""
    start, end, _ = rng.choices(quotas, [quota for *_, quota in quotas])[0]
    number = rng.randrange(start, end)
    digits = str(number)[::-1]
    units, numbers = len(digits[::3]), set[int]()
    tens, others = permute(digits[1::3], rng, REARRANGED), permute(digits[::3] + digits[2::3], rng, REARRANGED)
    for ten, other in zip(tens, others, strict=True):
        # From the last digit on: of each three the unit, the ten and the hundred.
        moved = [""] * len(digits)
        moved[::3], moved[1::3], moved[2::3] = other[:units], ten, other[units:]
        numbers.add(int("".join(moved[::-1])))
    kept = sorted(other for other in numbers if start <= other < end)
    return make_pair(number, source, target), [make_pair(other, source, target) for other in kept]


def _plan_quotas(largest: int, total: int) -> Iterator[tuple[int, int, int]]:
    """Yield for every count of digits the first number, the end, and how many are drawn."""
    ends = [min(10**count, largest + 1) for count in range(1, len(str(largest)) + 1)]
    start = drawn = 0
    for position, end in enumerate(ends):
        fair = -(-(total - drawn) // (len(ends) - position))
        room_above = largest + 1 - end
        quota = min(end - start, max(fair, total - drawn - room_above))
        yield start, end, quota
        start, drawn = end, drawn + quota


def _draw_other_numbers(
    number: int,
    *,
    largest: int,
    trained: Sequence[int],
    held_out: Collection[int],
    measure: Callable[[], tuple[int, int]] | None,
    spell: Callable[[int], Pair],
    rounds: Sequence[int],
    seed: int,
) -> list[Pair]:
    """Draw a training split anew, which ``number`` decides: as many numbers of every count of digits as ``trained``.

    None is ``held_out``; those of the first draw may be among them. ``measure`` returns the characters that no source
    and no target may exceed, because splits of longer text begin above them; None where there are no such splits.
    ``rounds``: the round numbers that every draw ends with.
    """
    rng = random.Random(f"numbers:{largest}:{len(trained)}:{seed}:redrawn:{number}")
    source_bound, target_bound = measure() if measure else (math.inf, math.inf)
    pairs: list[Pair] = []
    for start, end, _ in _plan_quotas(largest, len(trained) + len(held_out)):
        wanted = sum(start <= other < end for other in trained)
        others = (spell(other) for other in _draw_different(range(start, end), rng) if other not in held_out)
        fitting = (pair for pair in others if len(pair.source) <= source_bound and len(pair.target) <= target_bound)
        pairs += islice(fitting, wanted)
    rng.shuffle(pairs)
    return pairs + [spell(number) for number in rounds]


def _draw_different(numbers: range, rng: random.Random) -> Iterator[int]:
    """Yield all numbers of a range in random order; the range is listed only when half of it has been drawn."""
    drawn: set[int] = set()
    while 2 * len(drawn) < len(numbers):
        number = rng.choice(numbers)
        if number not in drawn:
            drawn.add(number)
            yield number
    rest = [number for number in numbers if number not in drawn]
    rng.shuffle(rest)
    yield from rest


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
    # As near as may be equally many numbers of every count of digits.
    quotas = list(_plan_quotas(largest, train + validation + test))
    chosen = [number for start, end, quota in quotas for number in rng.sample(range(start, end), quota)]
    rng.shuffle(chosen)
    spell = partial(make_pair, source=source, target=target)
    digits = range(len(str(largest)) + 1, len(str(largest)) + 4)
    rounds = _round(largest, digits[-1]) if longer else []
    held_out = {"validation": chosen[train : train + validation], "test": chosen[train + validation :]}
    parts = {"train": [*chosen[:train], *rounds], **held_out}
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
    facts: dict[str, Fact] = {"source language": source, "target language": target}
    facts["largest number trained on"] = largest
    description = f"numbers from 0 to {largest:,} written out, {source} to {target}"
    drawn = Drawn(partial(_draw_with_rearranged, quotas, source, target), "numbers", DRAWN)
    listed: tuple[Population, ...] = (_Spelled(quotas, source, largest),) if largest < 10**6 else ()
    redraw = partial(
        _draw_other_numbers, largest=largest, trained=chosen[:train], held_out=frozenset(chosen[train:]),
        measure=measure if longer else None, spell=spell, rounds=rounds, seed=seed,
    )  # fmt: skip

    def list_morphemes() -> tuple[Morphemes, Morphemes]:
        return _list_morphemes(source, digits[-1]), _list_morphemes(target, digits[-1])

    return Corpus("numbers", "translation", splits, description, facts, list_morphemes, (*listed, drawn), redraw)


def _check(source: str, target: str, largest: int, sizes: dict[str, int], longer: int) -> None:
    languages = _list_languages()
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
