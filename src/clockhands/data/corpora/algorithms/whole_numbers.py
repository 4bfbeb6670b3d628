"""Whole numbers as strings: binary sums, products and square roots, and decimal sums."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isqrt

from clockhands.data.corpora.algorithms.task import Symbols, shuffle_among

__all__ = [
    "draw_addition",
    "draw_binary",
    "draw_square",
    "rearrange_addition",
    "rearrange_binary",
    "solve_binary",
    "solve_square",
]


def draw_binary(operator: str) -> Callable[[int, random.Random], Symbols]:
    """Return a function that draws two numbers above 0, their lowest bit first, with an operator between them."""

    def draw(length: int, rng: random.Random) -> Symbols:
        size_of_first = rng.randrange(1, length - 1)
        sizes = (size_of_first, length - 1 - size_of_first)
        first, second = (f"{rng.randrange(1, 2**size):0{size}b}"[::-1] for size in sizes)
        return [*first, operator, *second]

    return draw


def solve_binary(symbols: Symbols, operator: str) -> Symbols:
    """Return the sum or product, its lowest bit first."""
    first, second = (int(part[::-1], 2) for part in "".join(symbols).split(operator))
    return list(f"{first + second if operator == '+' else first * second:b}"[::-1])


def draw_square(length: int, rng: random.Random) -> Symbols:
    """Draw a number above 0 in so many bits, the highest first."""
    return list(f"{rng.randrange(1, 2**length):0{length}b}")


def solve_square(symbols: Symbols) -> Symbols:
    """Return the root rounded down, its highest bit first, in half as many bits, rounded up."""
    return list(f"{isqrt(int(''.join(symbols), 2)):0{-(-len(symbols) // 2)}b}")


def draw_addition(length: int, rng: random.Random) -> Symbols:
    """Draw two decimal numbers as people write them, with + between them."""
    first = rng.randrange(1, length - 1)
    parts = [str(rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)) for size in (first, length - 1 - first)]
    return [*parts[0], "+", *parts[1]]


def rearrange_addition(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the digits; a number that would begin with 0 leaves all as it is."""
    moved = shuffle_among("0123456789")(symbols, rng)
    parts = "".join(moved).split("+")
    return symbols if any(len(part) > 1 and part[0] == "0" for part in parts) else moved


def rearrange_binary(operator: str) -> Callable[[Symbols, random.Random], Symbols]:
    """Return a function that shuffles the bits of both numbers, unless one would be 0."""

    def rearrange(symbols: Symbols, rng: random.Random) -> Symbols:
        moved = shuffle_among("01")(symbols, rng)
        return moved if all("1" in part for part in "".join(moved).split(operator)) else symbols

    return rearrange
