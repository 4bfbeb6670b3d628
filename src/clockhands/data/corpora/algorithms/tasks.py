"""The tasks by name."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias, get_args

from clockhands.data.corpora.algorithms.arithmetic import (
    DIGITS,
    MODULUS,
    draw_arithmetic,
    draw_brackets,
    draw_equation,
    evaluate,
    rearrange_equation,
    solve_equation,
)
from clockhands.data.corpora.algorithms.strings import (
    draw_missing,
    draw_recall,
    draw_stack,
    rearrange_missing,
    rearrange_recall,
    rearrange_stack,
    solve_missing,
    solve_recall,
    solve_stack,
)
from clockhands.data.corpora.algorithms.task import Symbols, Task, draw_letters, shuffle, shuffle_among
from clockhands.data.corpora.algorithms.whole_numbers import (
    draw_addition,
    draw_binary,
    draw_square,
    rearrange_addition,
    rearrange_binary,
    solve_binary,
    solve_square,
)

__all__ = ["BITS", "TASKS", "Name", "answer_flag"]

Name: TypeAlias = Literal[
    "even-pairs", "parity", "modular-arithmetic", "cycle-navigation",
    "stack-manipulation", "reverse", "modular-arithmetic-brackets", "solve-equation",
    "duplicate", "missing-duplicate", "odds-first", "binary-addition", "binary-multiplication", "square-root",
    "bucket-sort", "copy", "addition", "sort", "recall",
]  # fmt: skip

BITS = draw_letters("01")


def answer_flag(*, odd: bool) -> Symbols:
    """Return the answer of a question of yes (1) or no (0)."""
    return ["1" if odd else "0"]


TASKS: dict[str, Task] = {
    "even-pairs": Task(BITS, lambda s: answer_flag(odd=s[0] != s[-1]), shuffle),
    "parity": Task(BITS, lambda s: answer_flag(odd=s.count("1") % 2 == 1), shuffle),
    "modular-arithmetic": Task(draw_arithmetic, lambda s: [str(evaluate(s))], shuffle_among(DIGITS, "+-*")),
    "cycle-navigation": Task(
        lambda length, rng: rng.choices(("stay", "right", "left"), k=length),
        lambda s: [str((s.count("right") - s.count("left")) % MODULUS)],
        shuffle,
    ),
    "stack-manipulation": Task(draw_stack, solve_stack, rearrange_stack),
    "reverse": Task(BITS, lambda s: s[::-1], shuffle),
    "modular-arithmetic-brackets": Task(draw_brackets, lambda s: [str(evaluate(s))], shuffle_among(DIGITS)),
    "solve-equation": Task(draw_equation, solve_equation, rearrange_equation, 3),
    "duplicate": Task(BITS, lambda s: s + s, shuffle),
    "missing-duplicate": Task(draw_missing, solve_missing, rearrange_missing, 2),
    "odds-first": Task(BITS, lambda s: s[1::2] + s[::2], shuffle),
    "binary-addition": Task(draw_binary("+"), partial(solve_binary, operator="+"), rearrange_binary("+"), 3),
    "binary-multiplication": Task(draw_binary("×"), partial(solve_binary, operator="×"), rearrange_binary("×"), 3),
    "square-root": Task(draw_square, solve_square, shuffle),
    "bucket-sort": Task(draw_letters(DIGITS), sorted, shuffle),
    "copy": Task(draw_letters("abcdefghijklmnopqrstuvwxyz"), list, shuffle),
    "addition": Task(
        draw_addition,
        lambda s: list(str(sum(map(int, "".join(s).split("+"))))),
        rearrange_addition,
        3,
    ),
    "sort": Task(draw_letters("abcdefghijklmnopqrstuvwxyz"), sorted, shuffle),
    "recall": Task(draw_recall, solve_recall, rearrange_recall, 4),
}
assert set(TASKS) == set(get_args(Name))
