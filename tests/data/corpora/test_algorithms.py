"""Algorithms: every answer of 1,000 strings of each task is that of a solver written here, in another way.

Five strings of each task with their answers were drawn by the programs of its authors (``original_samples``).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import pytest

from clockhands.data import encode_texts, find_ceiling, open_corpus, train_tokenizers
from clockhands.data.corpora.algorithms import TASKS, Name
from clockhands.errors import ConfigError, UsageError
from tests.data.corpora.original_samples import samples

SMALL = {"train": 300, "validation": 20, "test": 40, "longer": 20}


def stack(source: list[str]) -> list[str]:
    """As the original does: a list, with pops of an empty one left out, returned from the top."""
    content: list[str] = []
    for word in source:
        if word in ("0", "1"):
            content.append(word)
        elif word == "pop":
            del content[-1:]
        else:
            content.append({"push0": "0", "push1": "1"}[word])
    content.reverse()
    return [*content, "end"]


def equation(source: list[str]) -> list[str]:
    left, right = "".join(source).split("=")
    solutions = [d for d in "01234" if eval(left.replace("x", d)) % 5 == int(right)]
    assert len(solutions) == 1, "the original has one solution where nothing is multiplied"
    return solutions


def missing(source: list[str]) -> list[str]:
    text = "".join(source)
    half = len(text) // 2
    for symbol in "01":
        whole = text.replace("_", symbol)
        if whole[:half] == whole[half:]:
            return [symbol]
    raise AssertionError(text)


def little_endian(operation: Callable[[int, int], int], sign: str) -> Callable[[list[str]], list[str]]:
    def solve(source: list[str]) -> list[str]:
        at = source.index(sign)
        one, other = (
            sum(2**place for place, bit in enumerate(bits) if bit == "1") for bits in (source[:at], source[at + 1 :])
        )
        result, bits = operation(one, other), []
        while result:
            bits.append(str(result % 2))
            result //= 2
        return bits

    return solve


def square_root(source: list[str]) -> list[str]:
    number = int("".join(source), 2)
    root = max(r for r in range(math.isqrt(number) + 2) if r * r <= number)
    return list(bin(root)[2:].rjust(math.ceil(len(source) / 2), "0"))


def recall(source: list[str]) -> list[str]:
    known: dict[str, str] = {}
    words = iter(source)
    for word in words:
        if word == "?":
            break
        assert word not in known, "every key is there once"
        known[word] = next(words)
    assert len(set(known.values())) == len(known)
    return [known[word] for word in words]


ORACLES: dict[str, Callable[[list[str]], list[str]]] = {
    "even-pairs": lambda s: [str(sum(a != b for a, b in pairwise(s)) % 2)],
    "parity": lambda s: [str(sum(map(int, s)) % 2)],
    "modular-arithmetic": lambda s: [str(eval("".join(s)) % 5)],
    "cycle-navigation": lambda s: [str(sum({"stay": 0, "right": 1, "left": -1}[a] for a in s) % 5)],
    "stack-manipulation": stack,
    "reverse": lambda s: list(reversed(s)),
    "modular-arithmetic-brackets": lambda s: [str(eval("".join(s)) % 5)],
    "solve-equation": equation,
    "duplicate": lambda s: s * 2,
    "missing-duplicate": missing,
    "odds-first": lambda s: [x for i, x in enumerate(s) if i % 2 == 1] + [x for i, x in enumerate(s) if i % 2 == 0],
    "binary-addition": little_endian(lambda a, b: a + b, "+"),
    "binary-multiplication": little_endian(lambda a, b: a * b, "×"),
    "square-root": square_root,
    "bucket-sort": lambda s: [d for d in "01234" for _ in range(s.count(d))],
    "copy": lambda s: [*s],
    "addition": lambda s: list(str(eval("".join(s)))),
    "sort": lambda s: [c for c, n in sorted(Counter(s).items()) for _ in range(n)],
    "recall": recall,
}


@pytest.mark.parametrize("name", get_args(Name))
def test_a_thousand_answers_are_those_of_another_solver(name: str) -> None:
    rng = random.Random(3)
    task = TASKS[name]
    for length in [rng.randint(task.shortest, 24) for _ in range(990)] + [task.shortest] * 10:
        symbols = task.draw(length, rng)
        # Arithmetic is of odd length, a string twice of even length; recall has no more queries than keys.
        assert length - 2 <= len(symbols) <= length
        pair = task.make_pair(symbols)
        assert pair.target.split() == ORACLES[name](pair.source.split()), pair.source
        moved = task.rearrange(symbols, rng)
        assert Counter(moved) == Counter(symbols), "the same bag"
        assert task.make_pair(moved).target.split() == ORACLES[name](moved), "and still a string of the task"


@pytest.mark.parametrize("name", sorted(set(get_args(Name)) - {"copy", "sort", "addition"}))
def test_the_programs_of_the_authors_gave_these_answers_and_draw_these_symbols(name: str) -> None:
    task, rng = TASKS[name], random.Random(5)
    rows = samples(name)
    assert len(rows) == 5
    for source, target in rows:
        assert task.solve(source) == target, source
    if name == "recall":  # its five strings have few of the keys and values that there are
        return
    drawn = {symbol for _ in range(300) for symbol in task.draw(rng.randint(task.shortest, 24), rng)}
    assert drawn == {symbol for source, _ in rows for symbol in source}


def test_the_examples_of_the_original_come_out() -> None:
    """From the documentation of the suite, in its notation."""
    examples = [
        ("even-pairs", "0 0 1 1 1 0", "0"), ("even-pairs", "0 1 0 1 0 0 1", "1"), ("parity", "1 0 1 0 1 0 0", "1"),
        ("modular-arithmetic", "1 + 2 * 3", "2"), ("modular-arithmetic", "0 * 1 + 4 * 3 - 2", "0"),
        ("cycle-navigation", "right left stay left left", "3"), ("cycle-navigation", "right right right left", "2"),
        ("stack-manipulation", "0 1 1 0 push1 pop pop", "1 1 0 end"),
        ("stack-manipulation", "1 1 0 pop pop pop", "end"),
        ("missing-duplicate", "0 1 1 0 0 _ 1 0", "1"), ("odds-first", "0 0 1 1 0 1 0 1", "0 1 1 1 0 1 0 0"),
        ("binary-addition", "0 0 1 + 0 1 1 0 1", "0 1 0 1 1"),
        ("binary-multiplication", "0 0 1 × 0 1 1 0 1", "0 0 0 1 1 0 1"),
        ("square-root", "1 0 0 1 0 1", "1 1 0"), ("bucket-sort", "1 0 2 0 4 1 1 2", "0 0 1 1 1 2 2 4"),
        ("duplicate", "1 0 1", "1 0 1 1 0 1"),
    ]  # fmt: skip
    for name, source, target in examples:
        assert TASKS[name].make_pair(source.split()).target == target, (name, source)


def test_splits_share_no_string_and_have_the_lengths_that_were_asked_for() -> None:
    corpus = open_corpus("algorithms", task="copy", shortest=2, longest=9, beyond=[15, 30], **SMALL)
    strings = {split: set(corpus.sources(split)) for split in corpus}
    assert not strings["train"] & strings["test"] and not strings["train"] & strings["validation"]
    assert not strings["validation"] & strings["test"]
    assert {len(source.split()) for source in corpus.sources("train")} == set(range(2, 10))
    for length in (15, 30):
        assert {len(source.split()) for source in corpus.sources(f"longer-{length}")} == {length}
        assert len(strings[f"longer-{length}"]) == SMALL["longer"]
    again = open_corpus("algorithms", task="copy", shortest=2, longest=9, beyond=[15, 30], **SMALL)
    assert again.pairs("test") == corpus.pairs("test")
    other = open_corpus("algorithms", task="copy", shortest=2, longest=9, beyond=[15, 30], seed=1, **SMALL)
    assert other.pairs("test") != corpus.pairs("test")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        # The count of ones is all that matters, or the count of every symbol.
        ("parity", 1, 1), ("bucket-sort", 1, 1),
        *(pytest.param(name, 1, 1, marks=pytest.mark.exhaustive) for name in ("cycle-navigation", "sort")),
        # Ones come twice, so an odd count tells what is missing.
        ("missing-duplicate", 1, 1),
        # Of all orders of twelve letters one is the answer, and most letters differ; of recall who asked is not known.
        ("copy", 0, 0.05), ("recall", 0, 0.1),
    ],
)  # fmt: skip
def test_what_can_be_done_without_order_is_known(name: str, low: float, high: float) -> None:
    corpus = open_corpus("algorithms", task=name, shortest=12, longest=24, beyond=[], **SMALL)
    tokenizers = train_tokenizers(corpus, kind="word")
    ceiling = find_ceiling(corpus, tokenizers)
    assert low <= ceiling.share <= high
    ids = encode_texts(tokenizers.source, corpus.sources("test"))
    lengths = [len(source.split()) for source in corpus.sources("test")]
    assert [len(row) - 1 for row in ids] == lengths, "every symbol is one token"


def test_the_ceiling_of_reversing_bits_is_that_of_counting() -> None:
    """Of n bits with k ones, one order in (n over k) is right: all in all (n + 1) / 2^n."""
    options = {"shortest": 6, "longest": 6, "beyond": [], "train": 100, "validation": 1, "test": 1}
    corpus = open_corpus("algorithms", task="reverse", **options)
    ceiling = find_ceiling(corpus, train_tokenizers(corpus, kind="word"))
    assert ceiling.low - 0.01 < 7 / 64 < ceiling.high + 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "recall", "longest": 3}, "longest=3, but recall begins at 4 symbols, and shortest=1"),
        ({"beyond": [2**62]}, "strings of 4,611,686,018,427,387,904 symbols; 1,000,000 are the most"),
        ({"longest": 20, "beyond": [20]}, r"beyond=\[20\] must be longer than longest=20"),
        (
            {"longest": 5, "beyond": [], "validation": 100},
            "there are not 100 different strings of 1 to 5 symbols for one split",
        ),
    ],
)
def test_algorithms_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_corpus("algorithms", **options)
    with pytest.raises(ConfigError, match="task is 'revers'"):
        open_corpus("algorithms", task="revers")


def test_digits_of_an_addition_are_rearranged_without_leading_zeros() -> None:
    """Of 30 + 14 a third of the orders and more begin a number with 0: those are left as they were."""
    rng = random.Random(0)
    sums = {"".join(TASKS["addition"].rearrange(list("30+14"), rng)) for _ in range(300)}
    assert len(sums) > 10
    assert all(sorted(text) == sorted("30+14") and text[2] == "+" for text in sums)
    assert not any(part[0] == "0" for text in sums for part in text.split("+"))
