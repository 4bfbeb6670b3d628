"""Arithmetic modulo 5 with digits, operators and brackets, and equations in it."""

from __future__ import annotations

import random

from clockhands.data.corpora.algorithms.task import Symbols, shuffle_among

__all__ = [
    "DIGITS",
    "MODULUS",
    "draw_arithmetic",
    "draw_brackets",
    "draw_equation",
    "evaluate",
    "rearrange_equation",
    "solve_equation",
]

MODULUS = 5
"""Of the arithmetic, the cycle and the alphabet of bucket sort, as in the paper."""
DIGITS = "".join(map(str, range(MODULUS)))


def draw_arithmetic(length: int, rng: random.Random) -> Symbols:
    """Draw digits with +, - or * between them; the length is odd, at most ``length``."""
    digits = rng.choices(DIGITS, k=(length + 1) // 2)
    operators = rng.choices("+-*", k=len(digits) - 1)
    return [*(part for pair in zip(digits, operators, strict=False) for part in pair), digits[-1]]


def evaluate(symbols: Symbols) -> int:
    """Evaluate digits, brackets, + - *, and a minus in front, by recursive descent, modulo ``MODULUS``."""
    rest = list(reversed(symbols))

    def read_sum() -> int:
        value = read_product()
        while rest and rest[-1] in "+-":
            value = value + read_product() if rest.pop() == "+" else value - read_product()
        return value

    def read_product() -> int:
        value = read_atom()
        while rest and rest[-1] == "*":
            rest.pop()
            value *= read_atom()
        return value

    def read_atom() -> int:
        symbol = rest.pop()
        if symbol == "-":
            return -read_atom()
        if symbol != "(":
            return int(symbol)
        value = read_sum()
        rest.pop()
        return value

    return read_sum() % MODULUS


def draw_brackets(length: int, rng: random.Random, operators: str = "+-*") -> Symbols:
    """Draw an expression of exactly this length: d, -d, (d), (-d), or two in brackets with an operator between."""
    if length <= 4:
        digit = rng.choice(DIGITS)
        return [[digit], ["-", digit], ["(", digit, ")"], ["(", "-", digit, ")"]][length - 1]
    left = rng.randrange(1, length - 3)
    first = draw_brackets(left, rng, operators)
    operator = rng.choice(operators)
    return ["(", *first, operator, *draw_brackets(length - left - 3, rng, operators), ")"]


def draw_equation(length: int, rng: random.Random) -> Symbols:
    """Draw an expression in brackets in which a digit is x, and its value: (x + 1) = 3.

    Nothing is multiplied, so that x has one value: in (x * 0) = 0 it could be any digit.
    """
    expression = draw_brackets(length - 2, rng, "+-")
    place = rng.choice([place for place, symbol in enumerate(expression) if symbol in DIGITS])
    value = str(evaluate(expression))
    return [*expression[:place], "x", *expression[place + 1 :], "=", value]


def solve_equation(symbols: Symbols) -> Symbols:
    """Return the value of x by trying every digit; as there is no product, one alone fits."""
    *expression, _, value = symbols
    fits = (d for d in DIGITS if evaluate([d if s == "x" else s for s in expression]) == int(value))
    return [next(fits)]


def rearrange_equation(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle x among the digits of the left side, whose value may then be another: then it stays as it is."""
    *expression, equals, value = symbols
    moved = shuffle_among(DIGITS + "x")(expression, rng) if "(" in expression else expression
    answers = [d for d in DIGITS if evaluate([d if s == "x" else s for s in moved]) == int(value)]
    return [*moved, equals, value] if answers else symbols
