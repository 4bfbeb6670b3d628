"""Tasks on which length generalisation is studied: short to read, exact to answer, and of any length.

Those of the Chomsky-hierarchy suite (Delétang et al. 2022, "Neural Networks and the Chomsky Hierarchy", appendix A.1),
copying, sorting and decimal addition, and associative recall with several queries (MQAR; Arora et al. 2023, "Zoology").
A task draws strings and has an algorithm that answers them; symbols are words, so that a tokenizer of kind ``word`` has
one token for each. The loss and the score are those of the answer alone, which is the target.

On 2026-11-27 each solver here was compared with the authors' program for its task (the suite's at commits 2b8eb4b and
8084451 of its repository, Zoology's at dbcb60d): it gives the program's answers to 1,000 strings that the program drew,
and the program, made to draw 1,000 strings of ours, gives our answers. Copying, sorting of letters and decimal addition
have no such program. What is drawn and how an answer ends differs in these points:

- The suite ends stacks, binary sums and products with a token of termination and pads them with zeros; ours end with
  their last symbol. A stack keeps the token, as ``end``, since the answer of an empty one would be empty.
- The suite has something of every length, an arbitrary string where the task has none, and a token of padding behind a
  duplicate of odd length; here a task begins at its shortest string, and takes the next shorter one it has.
- In an equation every digit is equally likely to be x; in the suite, likelier the more other symbols stand before it.
- The suite trains on 1 to 40 symbols; here ``shortest`` and ``longest`` say it.
- Zoology's MQAR has 8,192 tokens and one text: key-value pairs, then the keys in places whose gaps follow a power law,
  random tokens between them, and each answer is predicted at its key. In ``recall`` a string has pairs, ``?`` and every
  key once in random order, of 64 keys and 64 values, and the target has the values in that order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Literal, TypeAlias, get_args
from zlib import crc32

from clockhands.data.population import Drawn, Pair, check_sentences
from clockhands.data.splits import Corpus, corpus
from clockhands.errors import UsageError
from clockhands.options import Count, Seed

Symbols: TypeAlias = list[str]
"""A string, symbol by symbol."""
MOST_SYMBOLS = 1_000_000
"""Of one string."""
REARRANGED = 60
"""How many rearrangements of a string are drawn, to count what other answers its symbols can have."""


@dataclass(frozen=True)
class Algorithm:
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


def shuffle(symbols: Symbols, rng: random.Random) -> Symbols:
    """Return the symbols in random order."""
    return rng.sample(symbols, len(symbols))


def _shuffle_among(symbols: Symbols, rng: random.Random, *, groups: Sequence[str]) -> Symbols:
    """Shuffle the symbols of each group among their places; all others stay."""
    result = list(symbols)
    for group in groups:
        places = [place for place, symbol in enumerate(symbols) if symbol in group]
        for place, symbol in zip(places, shuffle([symbols[place] for place in places], rng), strict=True):
            result[place] = symbol
    return result


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
    moved = _shuffle_among(expression, rng, groups=(DIGITS + "x",)) if "(" in expression else expression
    answers = [d for d in DIGITS if evaluate([d if s == "x" else s for s in moved]) == int(value)]
    return [*moved, equals, value] if answers else symbols


KEYS, VALUES = 64, 64
"""Different keys and values of associative recall."""
ACTIONS = ("pop", "push0", "push1")
"""What is done with a stack."""


def _draw_stack(length: int, rng: random.Random) -> Symbols:
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
    mark = symbols.index("?")
    known = dict(zip(symbols[:mark:2], symbols[1:mark:2], strict=True))
    return [known[key] for key in symbols[mark + 1 :]]


def _rearrange_recall(symbols: Symbols, rng: random.Random) -> Symbols:
    mark = symbols.index("?")
    values = shuffle(symbols[1:mark:2], rng)
    pairs = shuffle([f"{key} {value}" for key, value in zip(symbols[:mark:2], values, strict=True)], rng)
    return [*" ".join(pairs).split(), "?", *shuffle(symbols[mark + 1 :], rng)]


def _draw_addition(length: int, rng: random.Random) -> Symbols:
    """Draw two decimal numbers as people write them, with + between them."""
    first = rng.randrange(1, length - 1)
    parts = [str(rng.randrange(10 ** (size - 1) if size > 1 else 0, 10**size)) for size in (first, length - 1 - first)]
    return [*parts[0], "+", *parts[1]]


def _rearrange_addition(symbols: Symbols, rng: random.Random) -> Symbols:
    """Shuffle the digits; a number that would begin with 0 leaves all as it is."""
    moved = _shuffle_among(symbols, rng, groups=("0123456789",))
    parts = "".join(moved).split("+")
    return symbols if any(len(part) > 1 and part[0] == "0" for part in parts) else moved


def _make_binary(operator: str) -> Algorithm:
    """Make the task of two binary numbers above 0, their lowest bit first, with an operator between them."""

    def draw(length: int, rng: random.Random) -> Symbols:
        first = rng.randrange(1, length - 1)
        parts = [f"{rng.randrange(1, 2**size):0{size}b}"[::-1] for size in (first, length - 1 - first)]
        return [*parts[0], operator, *parts[1]]

    def solve(symbols: Symbols) -> Symbols:
        first, second = (int(part[::-1], 2) for part in "".join(symbols).split(operator))
        return list(f"{first + second if operator == '+' else first * second:b}"[::-1])

    def rearrange(symbols: Symbols, rng: random.Random) -> Symbols:
        """Shuffle the bits of both numbers, unless one would be 0."""
        moved = _shuffle_among(symbols, rng, groups=("01",))
        return moved if all("1" in part for part in "".join(moved).split(operator)) else symbols

    return Algorithm(draw, solve, rearrange, 3)


def _make_letters(alphabet: str, solve: Callable[[Symbols], Symbols]) -> Algorithm:
    return Algorithm(lambda length, rng: rng.choices(alphabet, k=length), solve, shuffle)


Name: TypeAlias = Literal[
    "even-pairs", "parity", "modular-arithmetic", "cycle-navigation",
    "stack-manipulation", "reverse", "modular-arithmetic-brackets", "solve-equation",
    "duplicate", "missing-duplicate", "odds-first", "binary-addition", "binary-multiplication", "square-root",
    "bucket-sort", "copy", "addition", "sort", "recall",
]  # fmt: skip

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TASKS: dict[str, Algorithm] = {
    "even-pairs": _make_letters("01", lambda s: [str(int(s[0] != s[-1]))]),
    "parity": _make_letters("01", lambda s: [str(s.count("1") % 2)]),
    "modular-arithmetic": Algorithm(
        _draw_arithmetic, lambda s: [str(evaluate(s))], partial(_shuffle_among, groups=(DIGITS, "+-*"))
    ),
    "cycle-navigation": Algorithm(
        lambda length, rng: rng.choices(("stay", "right", "left"), k=length),
        lambda s: [str((s.count("right") - s.count("left")) % MODULUS)],
        shuffle,
    ),
    "stack-manipulation": Algorithm(_draw_stack, _solve_stack, _rearrange_stack),
    "reverse": _make_letters("01", lambda s: s[::-1]),
    "modular-arithmetic-brackets": Algorithm(
        _draw_brackets, lambda s: [str(evaluate(s))], partial(_shuffle_among, groups=(DIGITS,))
    ),
    "solve-equation": Algorithm(_draw_equation, _solve_equation, _rearrange_equation, 3),
    "duplicate": _make_letters("01", lambda s: s + s),
    "missing-duplicate": Algorithm(_draw_missing, _solve_missing, _rearrange_missing, 2),
    "odds-first": _make_letters("01", lambda s: s[1::2] + s[::2]),
    "binary-addition": _make_binary("+"),
    "binary-multiplication": _make_binary("×"),
    # A number above 0 in so many bits, and its root rounded down in half as many, rounded up; the highest bit first.
    "square-root": Algorithm(
        lambda length, rng: list(f"{rng.randrange(1, 2**length):0{length}b}"),
        lambda s: list(f"{isqrt(int(''.join(s), 2)):0{-(-len(s) // 2)}b}"),
        shuffle,
    ),
    "bucket-sort": _make_letters(DIGITS, sorted),
    "copy": _make_letters(LETTERS, list),
    "addition": Algorithm(
        _draw_addition, lambda s: list(str(sum(map(int, "".join(s).split("+"))))), _rearrange_addition, 3
    ),
    "sort": _make_letters(LETTERS, sorted),
    "recall": Algorithm(_draw_recall, _solve_recall, _rearrange_recall, 4),
}
assert set(TASKS) == set(get_args(Name))


PATIENCE, PARTS = 2_000, 10
"""Drawing stops after PATIENCE draws in a row that gave no new string. A hash divides all strings into PARTS parts: one
for the test split, one for validation, and the others for training."""


@corpus("algorithms", "translation", one_answer=True, tokenizer="word")
def algorithms(
    *,
    task: Name = "reverse",
    shortest: Count = 1,
    longest: Count = 20,
    beyond: tuple[int, ...] = (40, 80),
    train: Count = 20_000,
    validation: Count = 200,
    test: Count = 500,
    longer: Count = 200,
    seed: Seed = 0,
) -> Corpus:
    """Make strings and their answers: ``task`` says which; all lengths of the source are equally frequent.

    Strings of ``train``, ``validation`` and ``test`` have ``shortest`` to ``longest`` symbols, and none is in two of
    these splits; for every length of ``beyond`` there is a split of ``longer`` strings, named ``longer-40`` and so on.
    A task that has no string of a length takes the next shorter one it has.
    Raises UsageError for lengths out of order, and where there are too few different strings.
    """
    chosen = TASKS[task]
    least = max(shortest, chosen.shortest)
    if longest < least:
        raise UsageError(
            f"corpus 'algorithms': longest={longest}, but {task} begins at {chosen.shortest} symbols, and "
            f"shortest={shortest}"
        )
    if any(length <= longest for length in beyond):
        raise UsageError(f"corpus 'algorithms': beyond={list(beyond)} must be longer than longest={longest}")
    if (most := max(longest, *beyond, 1)) > MOST_SYMBOLS:
        raise UsageError(f"corpus 'algorithms': strings of {most:,} symbols; {MOST_SYMBOLS:,} are the most")
    sizes = {"train": train, "validation": validation, "test": test, "longer": longer * len(beyond)}
    check_sentences("algorithms", sizes)
    lengths = range(least, longest + 1)
    key = f"algorithms:{task}:{least}:{longest}:{seed}"
    rng = random.Random(key)

    def redraw(number: int) -> list[Pair]:
        other = random.Random(f"{key}:redrawn:{number}")
        return _draw_split(chosen, lengths, train, range(2, PARTS), other, repeat=True)

    splits = {
        "train": _draw_split(chosen, lengths, train, range(2, PARTS), rng, repeat=True),
        "validation": _draw_split(chosen, lengths, validation, range(1, 2), rng),
        "test": _draw_split(chosen, lengths, test, range(1), rng),
        **{f"longer-{length}": _draw_split(chosen, (length,), longer, range(PARTS), rng) for length in beyond},
    }
    populations = (Drawn(partial(chosen.draw_with_rearranged, lengths), "strings"),)
    description = f"{task} of {least} to {longest} symbols"
    return Corpus("algorithms", "translation", splits, description, populations=populations, redraw=redraw)


def _draw_split(
    task: Algorithm, lengths: Sequence[int], size: int, parts: range, rng: random.Random, *, repeat: bool = False
) -> list[Pair]:
    """Draw strings of these ``parts``, each once, or with ``repeat`` as often as it is drawn.

    A hash of the string decides its part, so that of the few short ones most are left for training.
    """
    pairs: list[Pair] = []
    seen: set[str] = set()
    misses = 0
    while len(pairs) < size and misses < PATIENCE:
        pair = task.make_pair(task.draw(rng.choice(lengths), rng))
        fits = crc32(pair.source.encode()) % PARTS in parts and (repeat or pair.source not in seen)
        misses = 0 if fits else misses + 1
        if fits:
            pairs.append(pair)
            seen.add(pair.source)
    if len(pairs) == size:
        return pairs
    raise UsageError(
        f"corpus 'algorithms': there are not {size:,} different strings of {min(lengths)} to {max(lengths)} symbols "
        f"for one split (only {len(pairs):,} were found); ask for fewer or for longer ones"
    )
