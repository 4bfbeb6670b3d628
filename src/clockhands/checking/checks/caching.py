"""Decoding with a cache: it equals one pass over the whole text, under a mask too, and may be used again."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import (
    Inapplicable,
    Measurement,
    check,
    compare_rows,
    difference,
    new_cache,
    read_in_pieces,
    refusals,
    worst,
)
from clockhands.checking.models.huggingface import KV_CACHES
from clockhands.checking.models.subject import Subject

_LENGTH = 40  # crosses the windows of 16 that the shrunk models have
_MASKED = 24
_cache_check = partial(check, needs=("cache",), causal=True)
_masked_check = partial(check, needs=("cache", "mask"), causal=True)
_placed_check = partial(check, needs=("cache", "mask", "positions"), causal=True)


def _compare_pieces(subject: Subject, stops: list[int]) -> Measurement:
    ids = subject.tokens(2, stops[-1])
    size, position = worst(read_in_pieces(subject, ids, stops), subject.logits(ids))
    return Measurement(size, f"largest at token {position} of {stops[-1]}", tokens=stops[-1])


@_cache_check(
    "cache.steps",
    "an offset dropped; a window cut wrongly",
    uses=("cached decoding", "resume", "rollback", "left-padded generate"),
)
def _steps(subject: Subject) -> Measurement:
    """One token at a time equals all at once, also past the window."""
    return _compare_pieces(subject, list(range(8, _LENGTH + 1)))


@_cache_check("cache.chunks", "a mask or a state that restarts at the second chunk", uses=("resume",))
def _chunks(subject: Subject) -> Measurement:
    """Continuing with several tokens equals all at once."""
    return _compare_pieces(subject, [11, 18, 31, _LENGTH])


@_cache_check("cache.rollback", "rejected drafts that stay; an offset that is not taken back", uses=("rollback",))
def _rollback(subject: Subject) -> Measurement:
    """Tokens taken back leave no trace in the cache.

    Five tokens are taken back, and others read in their place, inside the window.
    """
    back = getattr(subject.adapter, "roll_back", None)
    if back is None:
        raise Inapplicable("the cache cannot be rolled back")
    ids, wrong = subject.tokens(1, 14), subject.tokens(1, 5, salt=3)
    cache = new_cache(subject)
    subject.logits(ids[:, :8], cache=cache)
    subject.logits(wrong, cache=cache)
    kinds = (NotImplementedError, ValueError, AttributeError, TypeError, RuntimeError)
    with refusals("the cache refuses", *kinds, most=120):
        back(cache, 5)
    actual = subject.logits(ids[:, 8:], cache=cache)
    return Measurement(difference(actual, subject.logits(ids)[:, 8:]), "5 tokens taken back of 13")


@_placed_check(
    "cache.padded",
    "one position shared by all rows at a decoding step",
    uses=("left padding with position_ids", "left-padded generate"),
)
def _padded(subject: Subject) -> Measurement:
    """Rows of unequal length, padded on the left, decode with a cache as each does alone."""
    ids = subject.tokens(1, 20)
    pads = subject.tokens(1, 4, salt=5)
    text = torch.cat([torch.cat([pads, ids], 1), subject.tokens(1, 24, salt=6)])
    mask = _mask_first(text, 4)
    together = read_in_pieces(subject, text, range(12, 25), mask, subject.positions(mask))
    return Measurement(difference(together[:1, 4:], subject.logits(ids)), "4 pads, 12 single steps")


def _mask_first(ids: Tensor, pads: int) -> Tensor:
    """Return a mask [B, S] under which the first tokens of the first row are pads."""
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :pads] = False
    return mask


@_cache_check("cache.static", "slots that were never written looked at", huggingface=True, uses=("static cache",))
def _static(subject: Subject) -> Measurement:
    """A cache of fixed size gives what a growing one gives."""
    ids, cache = subject.tokens(1, 24), new_cache(subject)
    cache.state = make_static_cache(subject)
    return Measurement(difference(read_in_pieces(subject, ids, range(8, 25), cache=cache), subject.logits(ids)))


def make_static_cache(subject: Subject) -> Any:
    """Return a static cache for 32 tokens. Raises Inapplicable where the model has none."""
    from transformers import StaticCache

    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "causal" or getattr(adapter, "cache_name", "") not in KV_CACHES:
        raise Inapplicable("only decoders with a KV cache have one")
    if not getattr(subject.module, "_can_compile_fullgraph", True):
        raise Inapplicable("the model declares no support for a static cache")
    return StaticCache(config=adapter.config, max_cache_len=32)


@_masked_check(
    "cache.mask",
    "positions counted from the part of the mask that belongs to the new tokens",
    uses=("cached decoding", "left-padded generate"),
)
def _ones(subject: Subject) -> Measurement:
    """Under a mask of ones, one token at a time equals all at once."""
    return _compare_masked_steps(subject, 0)


@_masked_check(
    "cache.left_mask",
    "pads that count at a decoding step and not in a whole text, or the other way round",
    uses=("left-padded generate", "left padding by the mask alone"),
)
def _left_mask(subject: Subject) -> Measurement:
    """Padded on the left, under the mask alone, one token at a time equals all at once."""
    return _compare_masked_steps(subject, 4)


def _compare_masked_steps(subject: Subject, pads: int) -> Measurement:
    """Compare with the same padded rows in one pass, so that it does not matter whether pads count as positions."""
    ids = subject.tokens(2, _MASKED)
    mask = _mask_first(ids, pads)
    actual = read_in_pieces(subject, ids, range(10, _MASKED + 1), mask)
    kept = mask.unsqueeze(-1)
    return Measurement(difference(actual * kept, subject.logits(ids, mask) * kept), f"{_MASKED - 10} single steps")


@_placed_check(
    "cache.prefill",
    "a mask or positions cut wrongly at the border of a chunk",
    uses=("resume", "left-padded generate"),
)
def _prefill(subject: Subject) -> Iterator[Measurement]:
    """A batch of unequal rows read in chunks equals each row alone.

    One row has pads on the left; its first chunk of seven is pads alone.
    """
    ids = subject.tokens(2, _MASKED)
    mask = _mask_first(ids, 8)
    together = read_in_pieces(subject, ids, [7, 14, 21, _MASKED], mask, subject.positions(mask))
    return compare_rows(subject, together, [ids[:1, 8:], ids[1:]], "chunks of 7")


@_placed_check(
    "cache.rollback_rows",
    "one count of tokens for all rows; rejected drafts that are still attended to",
    uses=("rollback",),
)
def _rollback_rows(subject: Subject) -> Iterator[Measurement]:
    """Drafts that one row rejects and another keeps leave no trace.

    Two rows read five drafts; the last three of one row are masked, and both go on, each at its own position. All of it
    is shorter than the windows of 16 that the shrunk models have, which count slots and not positions.
    """
    if getattr(subject.adapter, "packs", False):
        raise Inapplicable("where a position falls the model begins a document")
    prompt, drafts, rest = subject.tokens(2, 5), subject.tokens(2, 5, salt=3), subject.tokens(2, 5, salt=4)
    cache, read = new_cache(subject), torch.cat([prompt, drafts], 1)
    mask = torch.ones(2, 15, dtype=torch.bool, device=prompt.device)
    subject.logits(read, mask[:, :10], subject.arange(2, 10), cache)
    mask[0, 7:10] = False
    positions = torch.cat([subject.arange(1, 5, 7), subject.arange(1, 5, 10)])
    after = subject.logits(rest, mask, positions, cache)
    for row, kept in ((0, 7), (1, 10)):
        alone = torch.cat([read[row : row + 1, :kept], rest[row : row + 1]], 1)
        size = difference(after[row : row + 1], subject.logits(alone)[:, -5:])
        yield Measurement(size, "2 and 5 drafts of 5 kept")


@_cache_check("cache.prefix", "state that is kept beside the cache, and not copied with it", uses=("prefix cache",))
def _prefix(subject: Subject) -> Iterator[Measurement]:
    """Two texts continued from copies of one cache equal the whole texts."""
    start, cache = subject.tokens(1, 12), new_cache(subject)
    subject.logits(start, cache=cache)
    for salt, length in ((5, 9), (6, 4)):  # the longer first
        rest = subject.tokens(1, length, salt=salt)
        with refusals("the cache cannot be copied", TypeError, RuntimeError, NotImplementedError):
            again = copy.deepcopy(cache)
        whole = subject.logits(torch.cat([start, rest], 1))[:, 12:]
        yield Measurement(difference(subject.logits(rest, cache=again), whole), f"{length} tokens after 12")


@_cache_check("cache.reorder", "a part of the cache that is not reordered with the rest", uses=("beam search",))
def _reorder(subject: Subject) -> Measurement:
    """Rows of a cache in another order decode as those rows do.

    Three rows are read; the third, the first and the first again go on, as in beam search.
    """
    change = getattr(subject.adapter, "reorder", None)
    if change is None:
        raise Inapplicable("the adapter has no reorder()")
    ids, rest = subject.tokens(3, 18), subject.tokens(3, 6, salt=5)
    rows, cache = torch.tensor([2, 0, 0], device=ids.device), new_cache(subject)
    subject.logits(ids[:, :12], cache=cache)
    change(cache, rows)
    actual = read_in_pieces(subject, rest, range(1, 7), cache=cache)
    whole = subject.logits(torch.cat([ids[rows, :12], rest], 1))[:, 12:]
    return Measurement(difference(actual, whole), "row 3, row 1 and row 1 in place of 1, 2 and 3")


@check(
    "cache.reused",
    "keys of another text or at other positions taken from the prefix cache",
    uses=("prefix cache",),
    needs=("reuse",),
)
def _reused(subject: Subject) -> Measurement:
    """A text whose beginning is in the program's prefix cache is read as without."""
    adapter: Any = subject.adapter
    first, second = subject.tokens(2, 48).split(1)
    second = torch.cat([first[:, :24], second[:, 24:]], 1)
    adapter.reuse(first)
    return Measurement(difference(adapter.reuse(second), subject.logits(second)), "the first 24 tokens cached")


@check(
    "cache.moved",
    "keys that are rotated by another rule than when they were made",
    uses=("moved positions", "resume"),
    needs=("move",),
    shared=True,
)
def _moved(subject: Subject) -> Measurement:
    """Where only distances count, keys in the cache that are moved on change nothing."""
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
