"""The tasks: functions that draw a string, answer it, and rearrange its symbols. Symbols are words.

First what a task is, then arithmetic modulo a number, strings whose symbols are moved, completed or looked up, and
whole numbers as strings: binary sums, products and square roots, and decimal sums.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Literal, TypeAlias, get_args

from clockhands.data.population import Pair

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


def _draw_letters(alphabet: str) -> Callable[[int, random.Random], Symbols]:
    """Return a function that draws so many letters of an alphabet."""
    return lambda length, rng: rng.choices(alphabet, k=length)


def shuffle(symbols: Symbols, rng: random.Random) -> Symbols:
    """Return the symbols in random order."""
    return rng.sample(symbols, len(symbols))


def _shuffle_among(*groups: str) -> Callable[[Symbols, random.Random], Symbols]:
    """Return a function that shuffles the symbols of each group among their places; all others stay."""

    def shuffle_groups(symbols: Symbols, rng: random.Random) -> Symbols:
        result = list(symbols)
        for group in groups:
            places = [place for place, symbol in enumerate(symbols) if symbol in group]
            for place, symbol in zip(places, shuffle([symbols[place] for place in places], rng), strict=True):
                result[place] = symbol
        return result

    return shuffle_groups


MODULUS = 5
"""Of the arithmetic, the cycle and the alphabet of bucket sort, as in the paper."""
DIGITS = "".join(map(str, range(MODULUS)))


def _draw_arithmetic(length: int, rng: random.Random) -> Symbols:
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


def _draw_brackets(length: int, rng: random.Random, operators: str = "+-*") -> Symbols:
    """Draw an expression of exactly this length: d, -d, (d), (-d), or two in brackets with an operator between."""
    if length <= 4:
        digit = rng.choice(DIGITS)
        return [[digit], ["-", digit], ["(", digit, ")"], ["(", "-", digit, ")"]][length - 1]
    left = rng.randrange(1, length - 3)
    first = _draw_brackets(left, rng, operators)
    operator = rng.choice(operators)
    return ["(", *first, operator, *_draw_brackets(length - left - 3, rng, operators), ")"]


def _draw_equation(length: int, rng: random.Random) -> Symbols:
    """Draw an expression in brackets in which a digit is x, and its value: (x + 1) = 3.

    Nothing is multiplied, so that x has one value: in (x * 0) = 0 it could be any digit.
    """
    expression = _draw_brackets(length - 2, rng, "+-")
    place = rng.choice([place for place, symbol in enumerate(expression) if symbol in DIGITS])
    value = str(evaluate(expression))
    return [*expression[:place], "x", *expression[place + 1 :], "=", value]


def _solve_equation(symbols: Symbols) -> Symbols:
    """Return the value of x by trying every digit; as there is no product, one alone fits."""
    *expression, _, value = symbols
    fits = (d for d in DIGITS if evaluate([d if s == "x" else s for s in expression]) == int(value))
    return [next(fits)]


def _rearrange_equation(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle x among the digits of the left side, whose value may then be another: then it stays as it is."""
    *expression, equals, value = symbols
    moved = _shuffle_among(DIGITS + "x")(expression, rng) if "(" in expression else expression
    answers = [d for d in DIGITS if evaluate([d if s == "x" else s for s in moved]) == int(value)]
    return [*moved, equals, value] if answers else symbols


KEYS, VALUES = 64, 64
"""Different keys and values of associative recall."""
ACTIONS = ("pop", "push0", "push1")
"""What is done with a stack."""


def _draw_stack(length: int, rng: random.Random) -> Symbols:
    """Draw a stack, bottom first, and what is done with it."""
    height = rng.randrange(1, length) if length > 1 else 1
    return [*rng.choices("01", k=height), *rng.choices(ACTIONS, k=length - height)]


def _solve_stack(symbols: Symbols) -> Symbols:
    """Return the stack in the end, its top first, and its bottom; popping an empty one does nothing."""
    stack: Symbols = []
    for symbol in symbols:
        if symbol == "pop":
            stack = stack[:-1]
        else:
            stack.append(symbol[-1])
    return [*stack[::-1], "end"]


def _rearrange_stack(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the symbols of the stack, and the actions."""
    stack, actions = ([s for s in symbols if (s in ACTIONS) == late] for late in (False, True))
    return [*shuffle(stack, rng), *shuffle(actions, rng)]


def _draw_missing(length: int, rng: random.Random) -> Symbols:
    """Draw a string twice, one symbol of which is missing."""
    half = rng.choices("01", k=length // 2)
    symbols = half + half
    symbols[rng.randrange(len(symbols))] = "_"
    return symbols


def _solve_missing(symbols: Symbols) -> Symbols:
    """Return the missing symbol: that at the same place of the other half."""
    place, half = symbols.index("_"), len(symbols) // 2
    return [symbols[place - half] if place >= half else symbols[place + half]]


def _rearrange_missing(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the string that stands there twice, and hide the same symbol at any of its places."""
    half = len(symbols) // 2
    (hidden,) = _solve_missing(symbols)
    whole = [hidden if symbol == "_" else symbol for symbol in symbols]
    moved = 2 * shuffle(whole[:half], rng)
    moved[rng.choice([place for place, symbol in enumerate(moved) if symbol == hidden])] = "_"
    return moved


def _draw_recall(length: int, rng: random.Random) -> Symbols:
    """Draw different keys, each with a value of its own, and then keys that are asked for: a third of the symbols."""
    count = min((length - 1) // 3, KEYS, VALUES)
    keys = [f"k{number}" for number in rng.sample(range(KEYS), count)]
    values = [f"v{number}" for number in rng.sample(range(VALUES), count)]
    wanted = rng.sample(keys, min(count, length - 1 - 2 * count))
    return [*(symbol for pair in zip(keys, values, strict=True) for symbol in pair), "?", *wanted]


def _solve_recall(symbols: Symbols) -> Symbols:
    """Return the value of each key that is asked for, in their order."""
    mark = symbols.index("?")
    known = dict(zip(symbols[:mark:2], symbols[1:mark:2], strict=True))
    return [known[key] for key in symbols[mark + 1 :]]


def _rearrange_recall(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the values among the keys, the pairs, and the keys that are asked for."""
    mark = symbols.index("?")
    values = shuffle(symbols[1:mark:2], rng)
    pairs = shuffle([f"{key} {value}" for key, value in zip(symbols[:mark:2], values, strict=True)], rng)
    return [*" ".join(pairs).split(), "?", *shuffle(symbols[mark + 1 :], rng)]


def _draw_binary(operator: str) -> Callable[[int, random.Random], Symbols]:
    """Return a function that draws two numbers above 0, their lowest bit first, with an operator between them."""

    def draw(length: int, rng: random.Random) -> Symbols:
        size_of_first = rng.randrange(1, length - 1)
        sizes = (size_of_first, length - 1 - size_of_first)
        first, second = (f"{rng.randrange(1, 2**size):0{size}b}"[::-1] for size in sizes)
        return [*first, operator, *second]

    return draw


def _solve_binary(symbols: Symbols, operator: str) -> Symbols:
    """Return the sum or product, its lowest bit first."""
    first, second = (int(part[::-1], 2) for part in "".join(symbols).split(operator))
    return list(f"{first + second if operator == '+' else first * second:b}"[::-1])


def _draw_square(length: int, rng: random.Random) -> Symbols:
    """Draw a number above 0 in so many bits, the highest first."""
    return list(f"{rng.randrange(1, 2**length):0{length}b}")


def _solve_square(symbols: Symbols) -> Symbols:
    """Return the root rounded down, its highest bit first, in half as many bits, rounded up."""
    return list(f"{isqrt(int(''.join(symbols), 2)):0{-(-len(symbols) // 2)}b}")


def _draw_addition(length: int, rng: random.Random) -> Symbols:
    """Draw two decimal numbers as people write them, with + between them."""
    first = rng.randrange(1, length - 1)
    parts = [str(rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)) for size in (first, length - 1 - first)]
    return [*parts[0], "+", *parts[1]]


def _rearrange_addition(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the digits; a number that would begin with 0 leaves all as it is."""
    moved = _shuffle_among("0123456789")(symbols, rng)
    parts = "".join(moved).split("+")
    return symbols if any(len(part) > 1 and part[0] == "0" for part in parts) else moved


def _rearrange_binary(operator: str) -> Callable[[Symbols, random.Random], Symbols]:
    """Return a function that shuffles the bits of both numbers, unless one would be 0."""

    def rearrange(symbols: Symbols, rng: random.Random) -> Symbols:
        moved = _shuffle_among("01")(symbols, rng)
        return moved if all("1" in part for part in "".join(moved).split(operator)) else symbols

    return rearrange


Name: TypeAlias = Literal[
    "even-pairs", "parity", "modular-arithmetic", "cycle-navigation",
    "stack-manipulation", "reverse", "modular-arithmetic-brackets", "solve-equation",
    "duplicate", "missing-duplicate", "odds-first", "binary-addition", "binary-multiplication", "square-root",
    "bucket-sort", "copy", "addition", "sort", "recall",
]  # fmt: skip

BITS = _draw_letters("01")

TASKS: dict[str, Task] = {
    "even-pairs": Task(BITS, lambda s: [str(int(s[0] != s[-1]))], shuffle),
    "parity": Task(BITS, lambda s: [str(s.count("1") % 2)], shuffle),
    "modular-arithmetic": Task(_draw_arithmetic, lambda s: [str(evaluate(s))], _shuffle_among(DIGITS, "+-*")),
    "cycle-navigation": Task(
        lambda length, rng: rng.choices(("stay", "right", "left"), k=length),
        lambda s: [str((s.count("right") - s.count("left")) % MODULUS)],
        shuffle,
    ),
    "stack-manipulation": Task(_draw_stack, _solve_stack, _rearrange_stack),
    "reverse": Task(BITS, lambda s: s[::-1], shuffle),
    "modular-arithmetic-brackets": Task(_draw_brackets, lambda s: [str(evaluate(s))], _shuffle_among(DIGITS)),
    "solve-equation": Task(_draw_equation, _solve_equation, _rearrange_equation, 3),
    "duplicate": Task(BITS, lambda s: s + s, shuffle),
    "missing-duplicate": Task(_draw_missing, _solve_missing, _rearrange_missing, 2),
    "odds-first": Task(BITS, lambda s: s[1::2] + s[::2], shuffle),
    "binary-addition": Task(_draw_binary("+"), partial(_solve_binary, operator="+"), _rearrange_binary("+"), 3),
    "binary-multiplication": Task(_draw_binary("×"), partial(_solve_binary, operator="×"), _rearrange_binary("×"), 3),
    "square-root": Task(_draw_square, _solve_square, shuffle),
    "bucket-sort": Task(_draw_letters(DIGITS), sorted, shuffle),
    "copy": Task(_draw_letters("abcdefghijklmnopqrstuvwxyz"), list, shuffle),
    "addition": Task(
        _draw_addition,
        lambda s: list(str(sum(map(int, "".join(s).split("+"))))),
        _rearrange_addition,
        3,
    ),
    "sort": Task(_draw_letters("abcdefghijklmnopqrstuvwxyz"), sorted, shuffle),
    "recall": Task(_draw_recall, _solve_recall, _rearrange_recall, 4),
}
assert set(TASKS) == set(get_args(Name))
