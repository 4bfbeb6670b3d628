"""A task on strings: functions that draw, answer and rearrange them. Symbols are words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from clockhands.data.pairs import Pair

__all__ = ["REARRANGED", "Symbols", "Task", "draw_letters", "shuffle", "shuffle_among"]

Symbols: TypeAlias = list[str]
"""A string, symbol by symbol."""
REARRANGED = 60
"""How many rearrangements of a string are drawn, to count what other answers its symbols can have."""


@dataclass(frozen=True)
class Task:
    """One task: functions that draw a string of at most a given length, answer it, and rearrange its symbols.

    What ``rearrange`` makes is as likely to be drawn as the string itself. ``shortest`` is the least length there is.
    """

    draw: Callable[[int, random.Random], Symbols]
    solve: Callable[[Symbols], Symbols]
    rearrange: Callable[[Symbols, random.Random], Symbols]
    shortest: int = 1

    def make_pair(self, symbols: Symbols) -> Pair:
        """Return a string with its answer."""
        return Pair(" ".join(symbols), " ".join(self.solve(symbols)))

    def draw_with_rearranged(self, lengths: Sequence[int], rng: random.Random) -> tuple[Pair, list[Pair]]:
        """Draw a string, and with it others of the same symbols."""
        symbols = self.draw(rng.choice(lengths), rng)
        rearranged = {tuple(symbols), *(tuple(self.rearrange(symbols, rng)) for _ in range(REARRANGED))}
        return self.make_pair(symbols), [self.make_pair(list(other)) for other in sorted(rearranged)]


def draw_letters(alphabet: str) -> Callable[[int, random.Random], Symbols]:
    """Return a function that draws so many letters of an alphabet."""
    return lambda length, rng: rng.choices(alphabet, k=length)


def shuffle(symbols: Symbols, rng: random.Random) -> Symbols:
    """Return the symbols in random order."""
    return rng.sample(symbols, len(symbols))


def shuffle_among(*groups: str) -> Callable[[Symbols, random.Random], Symbols]:
    """Return a function that shuffles the symbols of each group among their places; all others stay."""

    def shuffle_groups(symbols: Symbols, rng: random.Random) -> Symbols:
        result = list(symbols)
        for group in groups:
            places = [place for place, symbol in enumerate(symbols) if symbol in group]
            for place, symbol in zip(places, shuffle([symbols[place] for place in places], rng), strict=True):
                result[place] = symbol
        return result

    return shuffle_groups
