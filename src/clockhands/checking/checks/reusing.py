"""A cache that is used again: for a second text with the same beginning, and by other rows."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject


@check(
    "cache.prefix",
    "Two texts continued from copies of one cache equal the whole texts.",
    "state that is kept beside the cache, and not copied with it",
    uses=("prefix cache",),
    needs=("cache",),
    causal=True,
)
def prefix(subject: Subject) -> Measurement:
    """Read a prefix once, and two continuations of other lengths, the longer first."""
    start = subject.tokens(1, 12)
    cache = _new(subject)
    subject.logits(start, cache=cache)
    effects = []
    for salt, length in ((5, 9), (6, 4)):
        rest = subject.tokens(1, length, salt=salt)
        try:
            again = copy.deepcopy(cache)
        except (TypeError, RuntimeError, NotImplementedError) as fault:
            raise Inapplicable(f"the cache cannot be copied: {str(fault)[:80]}") from fault
        whole = subject.logits(torch.cat([start, rest], 1))[:, 12:]
        effects.append(Measurement(difference(subject.logits(rest, cache=again), whole), f"{length} tokens after 12"))
    return largest(*effects)


@check(
    "cache.reorder",
    "Rows of a cache in another order decode as those rows do.",
    "a part of the cache that is not reordered with the rest",
    uses=("beam search",),
    needs=("cache",),
    causal=True,
)
def reorder(subject: Subject) -> Measurement:
    """Read three rows, go on with the third, the first and the first again, as beam search does."""
    change = getattr(subject.adapter, "reorder", None)
    if change is None:
        raise Inapplicable("the adapter has no reorder()")
    ids = subject.tokens(3, 18)
    rows = torch.tensor([2, 0, 0], device=ids.device)
    cache = _new(subject)
    subject.logits(ids[:, :12], cache=cache)
    change(cache, rows)
    rest = subject.tokens(3, 6, salt=5)
    actual = [subject.logits(rest[:, step : step + 1], cache=cache) for step in range(6)]
    whole = subject.logits(torch.cat([ids[rows, :12], rest], 1))[:, 12:]
    return Measurement(difference(torch.cat(actual, 1), whole), "row 3, row 1 and row 1 in place of 1, 2 and 3")


@check(
    "cache.reused",
    "A text whose beginning is in the program's prefix cache is read as without.",
    "keys of another text or at other positions taken from the prefix cache",
    uses=("prefix cache",),
    needs=("reuse",),
)
def reused(subject: Subject) -> Measurement:
    """Two texts of the same beginning, one after the other, with the prefix cache on and off."""
    adapter: Any = subject.adapter
    first, second = subject.tokens(2, 48).split(1)
    second = torch.cat([first[:, :24], second[:, 24:]], 1)
    adapter.reuse(first)
    return Measurement(difference(adapter.reuse(second), subject.logits(second)), "the first 24 tokens cached")


@check(
    "cache.moved",
    "Where only distances count, keys in the cache that are moved on change nothing.",
    "keys that are rotated by another rule than when they were made",
    uses=("moved positions", "resume"),
    needs=("move",),
    shared=True,
)
def moved(subject: Subject) -> Measurement:
    """Half a text, all keys 32 positions on, the other half."""
    if subject.facts.absolute:
        raise Inapplicable("positions are absolute")
    ids = subject.tokens(1, 48)
    return Measurement(difference(read_moved(subject, ids, 32), read_moved(subject, ids, 0)), "moved by 32")


def read_moved(subject: Subject, ids: Tensor, by: int) -> Tensor:
    """Return the logits of a text of which the first half was moved on by so many positions before the rest is read."""
    adapter: Any = subject.adapter
    cache, half = adapter.new_cache(), ids.shape[1] // 2
    first = subject.logits(ids[:, :half], cache=cache)
    if by:
        adapter.move(cache, by)
    return torch.cat([first, subject.logits(ids[:, half:], cache=cache)], 1)


def _new(subject: Subject) -> Any:
    return subject.adapter.new_cache()  # type: ignore[attr-defined]
