"""Other numbers to train on, of the same law, none of which is in another split."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from clockhands.data.corpora.numbers.populations import plan_quotas
from clockhands.data.pairs import Pair

__all__ = ["OtherNumbers"]


@dataclass(frozen=True)
class OtherNumbers:
    """Draws a training split anew: as many numbers of every count of digits as ``trained``, none of ``held_out``.

    ``measure`` returns the characters that no source and no target may exceed, because splits of longer text begin
    above them; None where there are no such splits.
    ``rounds``: the round numbers that every draw ends with.
    """

    largest: int
    trained: tuple[int, ...]
    held_out: frozenset[int]
    measure: Callable[[], tuple[int, int]] | None
    spell: Callable[[int], Pair]
    rounds: tuple[int, ...]
    seed: int

    def __call__(self, number: int) -> list[Pair]:
        """Return the draw that ``number`` decides."""
        rng = random.Random(f"numbers:{self.largest}:{len(self.trained)}:{self.seed}:redrawn:{number}")
        pairs: list[Pair] = []
        for start, end, _ in plan_quotas(self.largest, len(self.trained) + len(self.held_out)):
            wanted = sum(start <= number < end for number in self.trained)
            pairs += islice(self._list_fitting(range(start, end), rng), wanted)
        rng.shuffle(pairs)
        return pairs + [self.spell(number) for number in self.rounds]

    def _list_fitting(self, numbers: range, rng: random.Random) -> Iterator[Pair]:
        """Yield different numbers in random order that may be trained on; those of the first draw are among them."""
        bounds = self.measure() if self.measure else None
        for number in _draw_different(numbers, rng):
            if number in self.held_out:
                continue
            pair = self.spell(number)
            if bounds is None or (len(pair.source) <= bounds[0] and len(pair.target) <= bounds[1]):
                yield pair


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
