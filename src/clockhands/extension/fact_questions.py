"""What is asked for in a text: facts at their depths, questions with right and wrong values, and the tokens of all.

- *passkey*: the wrong values do not stand in the text.
- *recall*: the wrong values are those of the other names, so a model that only knows which values there were is at
  chance (multi-query associative recall; Arora et al. 2023).
- *tracking*: facts whose value is the name of another fact; asked for is the value at the end of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from clockhands.extension.facts import Writing, find_words
from clockhands.extension.text import Stream
from clockhands.models import LanguageModel

__all__ = ["DEPTHS", "FACTS", "TASKS", "FactQuestion", "Item", "lay_out", "lay_out_all", "make_items", "spread_fillers"]

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where the facts that are asked for stand: 0 is the beginning of the text."""
TASKS = ("passkey", "recall", "tracking")
FACTS = {"recall": 6, "tracking": 3}
"""Facts of a text; of *tracking*, chains of two."""
WRONG = 15
"""Wrong values of *passkey*."""


@dataclass(frozen=True)
class FactQuestion:
    """A name that is asked for, with the right value and wrong ones, and the depth of the fact."""

    task: str
    name: int
    right: int
    wrong: tuple[int, ...]
    depth: float


@dataclass(frozen=True)
class Item:
    """One text: facts with the depth at which each stands, and what is asked of it."""

    facts: tuple[tuple[float, int, int], ...]
    questions: tuple[FactQuestion, ...]


def make_items(model: LanguageModel, tasks: Sequence[str], count: int, seed: int) -> list[list[Item]]:
    """Make ``count`` texts of each kind that these tasks need; passkey and recall are asked of the same ones."""
    names, values = find_words(model)
    made = []
    for number, (kind, kinds) in enumerate(((_make_recall, ("passkey", "recall")), (_make_tracking, ("tracking",)))):
        rng = np.random.default_rng([seed, number])
        items = [kind(rng, names, values, text) for text in range(count)]
        kept = [
            Item(item.facts, tuple(question for question in item.questions if question.task in tasks)) for item in items
        ]
        made += [kept] if any(task in tasks for task in kinds) else []
    return made


def _make_recall(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> Item:
    """Make a text with a fact at each of ``DEPTHS``, which are asked for, and more that are not."""
    count = FACTS["recall"]
    chosen = [int(name) for name in rng.choice(names, count, replace=False)]
    drawn = [int(value) for value in rng.choice(values, min(count + WRONG, len(values)), replace=False)]
    stated, absent = drawn[:count], tuple(drawn[count:])
    depths = [*DEPTHS, *(float(share) for share in rng.uniform(0.02, 0.98, count - len(DEPTHS)))]
    questions = []
    for name, right, depth in zip(chosen, stated, DEPTHS, strict=False):
        others = tuple(value for value in stated if value != right)
        questions += [
            FactQuestion("passkey", name, right, absent, depth),
            FactQuestion("recall", name, right, others, depth),
        ]
    return Item(tuple(zip(depths, chosen, stated, strict=True)), tuple(questions))


def _make_tracking(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], text: int) -> Item:
    """Make a text with chains that end at depths taken in turn."""
    count = FACTS["tracking"]
    chosen = [int(name) for name in rng.choice(names, 2 * count, replace=False)]
    ends = [int(value) for value in rng.choice(values, count, replace=False)]
    facts, questions = [], []
    for chain, right in enumerate(ends):
        first, second = chosen[2 * chain : 2 * chain + 2]
        depth = DEPTHS[(text + 2 * chain) % len(DEPTHS)]
        facts += [(0.7 * depth, first, right), (depth, second, first)]
        questions.append(FactQuestion("tracking", second, right, tuple(end for end in ends if end != right), depth))
    return Item(tuple(facts), tuple(questions))


def lay_out(item: Item, filler_S: Stream, writing: Writing, length: int, start: Sequence[int]) -> list[int]:
    """Return the tokens of a text without its question: filler with the facts at their depths.

    With a question it has ``length`` tokens. The filler ends with the same tokens at every length. Without facts it
    fills the whole text.
    """
    room = length - len(start) - len(writing.ask(0)) - len(item.facts) * writing.size
    body = filler_S[len(filler_S) - max(room, 0) :].tolist()
    ids, done = list(start), 0
    for depth, name, value in sorted(item.facts):
        here = int(depth * len(body))
        ids += body[done:here] + writing.state(name, value)
        done = here
    return [*ids, *body[done:]]


def lay_out_all(
    items: Sequence[Item], fillers: Sequence[Stream], writing: Writing, length: int, start: Sequence[int]
) -> list[list[int]] | None:
    """Return the tokens of all texts; None where the facts leave no room."""
    rows = [lay_out(item, filler, writing, length, start) for item, filler in zip(items, fillers, strict=True)]
    return rows if {len(row) for row in rows} == {length - len(writing.ask(0))} else None


def spread_fillers(stream: Stream, count: int, length: int) -> Iterable[Stream]:
    """Yield pieces of the stream, evenly spread; a stream that is too short is repeated."""
    long = np.resize(stream, max(len(stream), 2 * length))
    return (long[end - length : end] for end in np.linspace(length, len(long), count).astype(int))
