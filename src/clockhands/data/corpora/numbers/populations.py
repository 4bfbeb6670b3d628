"""What numbers are drawn from, and the best score on them without the order of the tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from clockhands.data.corpora.numbers.number_words import make_pair, spell
from clockhands.data.pairs import Pair
from clockhands.data.population import Bags, Ceiling, Composed, Drawn, Population, permute

__all__ = ["DRAWN", "REARRANGED", "make_populations", "plan_quotas"]

DRAWN, REARRANGED = 100, 60
"""How many numbers are drawn where not all can be listed, and how many orders of the digits of each."""


def make_populations(source: str, target: str, largest: int, total: int) -> tuple[Population, ...]:
    """Return the population of numbers from 0 to ``largest``: listed below a million, and one that is drawn."""
    quotas = list(plan_quotas(largest, total))
    drawn = Drawn(partial(_draw_with_rearranged, quotas, source, target), "numbers", DRAWN)
    return (_Spelled(quotas, source, largest), drawn) if largest < 10**6 else (drawn,)


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
    tens, others = permute(digits[1::3], rng, REARRANGED), permute(digits[::3] + digits[2::3], rng, REARRANGED)
    numbers = {_put_together(*order) for order in zip(tens, others, strict=True)}
    kept = sorted(other for other in numbers if start <= other < end)
    return make_pair(number, source, target), [make_pair(other, source, target) for other in kept]


def _put_together(tens: Sequence[str], others: Sequence[str]) -> int:
    """Return the number with these digits, from the last on: the tens of each three, and the units before hundreds."""
    digits = [""] * (len(tens) + len(others))
    units = len(digits[::3])
    digits[::3], digits[1::3], digits[2::3] = others[:units], tens, others[units:]
    return int("".join(digits[::-1]))


def plan_quotas(largest: int, total: int) -> Iterator[tuple[int, int, int]]:
    """Yield for every count of digits the first number, the end, and how many are drawn."""
    ends = [min(10**count, largest + 1) for count in range(1, len(str(largest)) + 1)]
    start = drawn = 0
    for position, end in enumerate(ends):
        fair = -(-(total - drawn) // (len(ends) - position))
        room_above = largest + 1 - end
        quota = min(end - start, max(fair, total - drawn - room_above))
        yield start, end, quota
        start, drawn = end, drawn + quota
