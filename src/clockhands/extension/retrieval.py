"""Retrieval: whether a value that stands in the text is found again, by depth and length, by its rank.

A base model writes what it likes; whether it would have found a value is seen in the rank of the right one among wrong
ones, of which chance gives one half. Three tasks (RULER, Hsieh et al. 2024, by rank in place of generation):

- *passkey*: one fact in the text; the wrong values do not stand in it.
- *recall*: several facts; the wrong values are those of the other names, so a model that only knows which values there
  were is at chance (multi-query associative recall; Arora et al. 2023).
- *tracking*: facts whose value is the name of another fact; asked for is the value at the end of the chain.

The control is the same question without the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from clockhands.extension.drift import LARGEST_BATCH_TOKENS, can_read, compute_tail_logits
from clockhands.extension.facts import FORMATS, Writing, find_words
from clockhands.extension.text import Stream
from clockhands.progress import CountProgress, ignore_count
from clockhands.runs import LanguageModel
from clockhands.shapes import Float

__all__ = ["CHANCE", "DEPTHS", "TASKS", "Item", "Retrieval", "choose_writing", "make_items", "measure_retrieval"]

CHANCE = 0.5
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where the fact that is asked for stands: 0 is the beginning of the text."""
FACTS = {"passkey": 1, "recall": 6, "tracking": 3}
"""Facts of an item; of *tracking*, chains of two."""
WRONG = 15
"""Wrong values of *passkey*."""
CALIBRATION = 24
"""Items by which the writing of the facts is chosen."""


@dataclass(frozen=True)
class Item:
    """One question: facts with the depth at which each stands, the name that is asked for, right and wrong values."""

    facts: tuple[tuple[float, int, int], ...]
    name: int
    right: int
    wrong: tuple[int, ...]
    depth: float


@dataclass(frozen=True)
class Retrieval:
    """Ranks of the right values, 1 the best and 0 the worst, by task: [items, lengths].

    Args:
        lengths: R lengths in tokens.
        ranks: of each task, N items by R lengths; NaN where the model cannot read so far.
        control: of each task, the ranks without the facts.
        depths_N: the depth of each item; the same for all tasks.
        writing: how a fact was written.
    """

    lengths: tuple[int, ...]
    ranks: Mapping[str, Float[np.ndarray, "N R"]]
    control: Mapping[str, Float[np.ndarray, " N"]]
    depths_N: Float[np.ndarray, " N"]
    writing: str


def _make_passkey(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], depth: float) -> Item:
    name = int(rng.choice(names))
    right, *wrong = (int(value) for value in rng.choice(values, min(WRONG + 1, len(values)), replace=False))
    return Item(((depth, name, right),), name, right, tuple(wrong), depth)


def _make_recall(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], depth: float) -> Item:
    count = FACTS["recall"]
    chosen = [int(name) for name in rng.choice(names, count, replace=False)]
    drawn_values = [int(value) for value in rng.choice(values, count, replace=False)]
    depths = [depth, *(float(share) for share in rng.uniform(0.02, 0.98, count - 1))]
    return Item(
        tuple(zip(depths, chosen, drawn_values, strict=True)),
        chosen[0],
        drawn_values[0],
        tuple(drawn_values[1:]),
        depth,
    )


def _make_tracking(rng: np.random.Generator, names: Sequence[int], values: Sequence[int], depth: float) -> Item:
    count = FACTS["tracking"]
    chosen = [int(name) for name in rng.choice(names, 2 * count, replace=False)]
    drawn_values = [int(value) for value in rng.choice(values, count, replace=False)]
    depths = [depth, *(float(share) for share in rng.uniform(0.1, 0.98, count - 1))]
    facts = []
    for chain, place in enumerate(depths):
        first, second = chosen[2 * chain : 2 * chain + 2]
        facts += [(0.7 * place, first, drawn_values[chain]), (place, second, first)]
    return Item(tuple(facts), chosen[1], drawn_values[0], tuple(drawn_values[1:]), depth)


Maker: TypeAlias = Callable[[np.random.Generator, Sequence[int], Sequence[int], float], Item]
TASKS: dict[str, Maker] = {"passkey": _make_passkey, "recall": _make_recall, "tracking": _make_tracking}


def make_items(model: LanguageModel, task: str, count: int, seed: int) -> list[Item]:
    """Make ``count`` questions of a task, the depths of ``DEPTHS`` in turn."""
    names, values = find_words(model)
    rng = np.random.default_rng([seed, list(TASKS).index(task)])
    return [TASKS[task](rng, names, values, DEPTHS[number % len(DEPTHS)]) for number in range(count)]


def lay_out(item: Item, filler_S: Stream, writing: Writing, length: int, start: Sequence[int]) -> list[int]:
    """Return the tokens of a question: filler with the facts at their depths, then the name that is asked for.

    The filler ends with the same tokens at every length. Without facts it fills the whole text.
    """
    question = writing.ask(item.name)
    room = length - len(start) - len(question) - len(item.facts) * writing.size
    body = filler_S[len(filler_S) - max(room, 0) :].tolist()
    ids, done = list(start), 0
    for depth, name, value in sorted(item.facts):
        here = int(depth * len(body))
        ids += body[done:here] + writing.state(name, value)
        done = here
    return [*ids, *body[done:], *question]


def rank(logits_V: torch.Tensor, item: Item) -> float:
    """Return the share of wrong values that the right one beats; a tie counts half."""
    wrong = logits_V[list(item.wrong)]
    right = logits_V[item.right]
    return float((right > wrong).double().mean() + 0.5 * (right == wrong).double().mean())


def _rank_all(model: LanguageModel, rows: Sequence[Sequence[int]], items: Sequence[Item]) -> Float[np.ndarray, " N"]:
    """Return the rank of the right value in each row, read in batches."""
    batch = max(1, LARGEST_BATCH_TOKENS // len(rows[0]))
    ranks: list[float] = []
    for first in range(0, len(rows), batch):
        logits_BV = compute_tail_logits(model, torch.tensor(rows[first : first + batch]), 1)[:, -1]
        ranks += [rank(row_V, item) for row_V, item in zip(logits_BV, items[first:], strict=False)]
    return np.array(ranks)


def _fillers(stream: Stream, count: int, length: int) -> Iterable[Stream]:
    """Yield pieces of the stream, evenly spread; a stream that is too short is repeated."""
    long = np.resize(stream, max(len(stream), 2 * length))
    return (long[end - length : end] for end in np.linspace(length, len(long), count).astype(int))


def choose_writing(model: LanguageModel, stream: Stream, length: int, seed: int) -> Writing:
    """Return the writing of facts that the model finds best in texts of ``length`` tokens, by items of their own."""
    items = [item for task in ("passkey", "recall") for item in make_items(model, task, CALIBRATION, seed + 1_000)]
    fillers = list(_fillers(stream, len(items), length))
    best, chosen = -1.0, None
    for form in FORMATS:
        writing = Writing.of(model, form)
        rows = [lay_out(item, filler, writing, length, model.start)
                for item, filler in zip(items, fillers, strict=True)]  # fmt: skip
        if {len(row) for row in rows} != {length}:
            continue
        mean = float(_rank_all(model, rows, items).mean())
        if mean > best:
            best, chosen = mean, writing
    return chosen or Writing.of(model, FORMATS[1])


def measure_retrieval(
    model: LanguageModel,
    stream: Stream,
    lengths: Sequence[int],
    writing: Writing,
    *,
    items: int,
    seed: int,
    tasks: Sequence[str] = tuple(TASKS),
    control: bool = True,
    progress: CountProgress = ignore_count,
) -> Retrieval:
    """Measure the rank of right values in texts of these lengths, ``items`` of each task, and without the facts.

    A length too short for the facts of a task is left out, as NaN.
    """
    ranks: dict[str, np.ndarray] = {}
    controls: dict[str, np.ndarray] = {}
    total, done = len(tasks) * sum(lengths), 0
    readable = [can_read(model, length) for length in lengths]
    for task in tasks:
        questions = make_items(model, task, items, seed)
        fillers = list(_fillers(stream, items, max(lengths)))
        ranks[task] = np.full((items, len(lengths)), np.nan)
        for rung, length in enumerate(lengths):
            progress("retrieval: tokens of context", done, total)
            done += length
            rows = [lay_out(item, filler, writing, length, model.start)
                    for item, filler in zip(questions, fillers, strict=True)]  # fmt: skip
            if readable[rung] and {len(row) for row in rows} == {length}:
                ranks[task][:, rung] = _rank_all(model, rows, questions)
        if control:
            bare = [Item((), item.name, item.right, item.wrong, item.depth) for item in questions]
            rows = [lay_out(item, filler, writing, min(lengths), model.start)
                    for item, filler in zip(bare, fillers, strict=True)]  # fmt: skip
            controls[task] = _rank_all(model, rows, bare)
    progress("retrieval: tokens of context", total, total)
    depths_N = np.array([DEPTHS[number % len(DEPTHS)] for number in range(items)])
    return Retrieval(tuple(lengths), ranks, controls, depths_N, writing.example)
