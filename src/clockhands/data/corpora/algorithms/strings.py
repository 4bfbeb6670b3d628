"""Strings whose symbols are moved, completed or looked up: stacks, a missing symbol, associative recall."""

from __future__ import annotations

import random

from clockhands.data.corpora.algorithms.task import Symbols, shuffle

__all__ = [
    "ACTIONS",
    "KEYS",
    "VALUES",
    "draw_missing",
    "draw_recall",
    "draw_stack",
    "rearrange_missing",
    "rearrange_recall",
    "rearrange_stack",
    "solve_missing",
    "solve_recall",
    "solve_stack",
]

KEYS, VALUES = 64, 64
"""Different keys and values of associative recall."""
ACTIONS = ("pop", "push0", "push1")
"""What is done with a stack."""


def draw_stack(length: int, rng: random.Random) -> Symbols:
    """Draw a stack, bottom first, and what is done with it."""
    height = rng.randrange(1, length) if length > 1 else 1
    return [*rng.choices("01", k=height), *rng.choices(ACTIONS, k=length - height)]


def solve_stack(symbols: Symbols) -> Symbols:
    """Return the stack in the end, its top first, and its bottom; popping an empty one does nothing."""
    stack: Symbols = []
    for symbol in symbols:
        if symbol == "pop":
            stack = stack[:-1]
        else:
            stack.append(symbol[-1])
    return [*stack[::-1], "end"]


def rearrange_stack(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the symbols of the stack, and the actions."""
    stack, actions = ([s for s in symbols if (s in ACTIONS) == late] for late in (False, True))
    return [*shuffle(stack, rng), *shuffle(actions, rng)]


def draw_missing(length: int, rng: random.Random) -> Symbols:
    """Draw a string twice, one symbol of which is missing."""
    half = rng.choices("01", k=length // 2)
    symbols = half + half
    symbols[rng.randrange(len(symbols))] = "_"
    return symbols


def solve_missing(symbols: Symbols) -> Symbols:
    """Return the missing symbol: that at the same place of the other half."""
    place, half = symbols.index("_"), len(symbols) // 2
    return [symbols[place - half] if place >= half else symbols[place + half]]


def rearrange_missing(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the string that stands there twice, and hide the same symbol at any of its places."""
    half = len(symbols) // 2
    (hidden,) = solve_missing(symbols)
    whole = [hidden if symbol == "_" else symbol for symbol in symbols]
    moved = 2 * shuffle(whole[:half], rng)
    moved[rng.choice([place for place, symbol in enumerate(moved) if symbol == hidden])] = "_"
    return moved


def draw_recall(length: int, rng: random.Random) -> Symbols:
    """Draw different keys, each with a value of its own, and then keys that are asked for: a third of the symbols."""
    count = min((length - 1) // 3, KEYS, VALUES)
    keys = [f"k{number}" for number in rng.sample(range(KEYS), count)]
    values = [f"v{number}" for number in rng.sample(range(VALUES), count)]
    wanted = rng.sample(keys, min(count, length - 1 - 2 * count))
    return [*(symbol for pair in zip(keys, values, strict=True) for symbol in pair), "?", *wanted]


def solve_recall(symbols: Symbols) -> Symbols:
    """Return the value of each key that is asked for, in their order."""
    mark = symbols.index("?")
    known = dict(zip(symbols[:mark:2], symbols[1:mark:2], strict=True))
    return [known[key] for key in symbols[mark + 1 :]]


def rearrange_recall(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the values among the keys, the pairs, and the keys that are asked for."""
    mark = symbols.index("?")
    values = shuffle(symbols[1:mark:2], rng)
    pairs = shuffle([f"{key} {value}" for key, value in zip(symbols[:mark:2], values, strict=True)], rng)
    return [*" ".join(pairs).split(), "?", *shuffle(symbols[mark + 1 :], rng)]
