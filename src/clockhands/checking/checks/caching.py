"""Decoding with a cache: it equals one pass over the whole text, under a mask too, and may be used again."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest, worst
from clockhands.checking.models.huggingface import KV_CACHES
from clockhands.checking.models.subject import Subject

_LENGTH = 40  # crosses the windows of 16 that the shrunk models have


@check(
    "cache.steps",
    "One token at a time equals all at once, also past the window.",
    "an offset dropped; a window cut wrongly",
    needs=("cache",),
    causal=True,
    uses=("cached decoding", "resume", "rollback", "left-padded generate"),
)
def steps(subject: Subject) -> Measurement:
    """Read a prompt of eight tokens, then single tokens."""
    return _in_pieces(subject, [8, *range(9, _LENGTH + 1)])


@check(
    "cache.chunks",
    "Continuing with several tokens equals all at once.",
    "a mask or a state that restarts at the second chunk",
    needs=("cache",),
    causal=True,
    uses=("resume",),
)
def chunks(subject: Subject) -> Measurement:
    """Read pieces of unequal size across the window."""
    return _in_pieces(subject, [11, 18, 31, _LENGTH])


@check(
    "cache.rollback",
    "Tokens taken back leave no trace in the cache.",
    "rejected drafts that stay; an offset that is not taken back",
    needs=("cache",),
    causal=True,
    uses=("rollback",),
)
def rollback(subject: Subject) -> Measurement:
    """Read five tokens, take them back and read others in their place, inside the window."""
    back = getattr(subject.adapter, "roll_back", None)
    if back is None:
        raise Inapplicable("the cache cannot be rolled back")
    ids, wrong = subject.tokens(1, 14), subject.tokens(1, 5, salt=3)
    cache = _new(subject)
    subject.logits(ids[:, :8], cache=cache)
    subject.logits(wrong, cache=cache)
    try:
        back(cache, 5)
    except (NotImplementedError, ValueError, AttributeError, TypeError, RuntimeError) as fault:
        raise Inapplicable(f"the cache refuses: {_short(fault)}") from fault
    actual = subject.logits(ids[:, 8:], cache=cache)
    return Measurement(difference(actual, subject.logits(ids)[:, 8:]), "5 tokens taken back of 13")


@check(
    "cache.padded",
    "Rows of unequal length, padded on the left, decode with a cache as each does alone.",
    "one position shared by all rows at a decoding step",
    needs=("cache", "mask", "positions"),
    causal=True,
    uses=("left padding with position_ids", "left-padded generate"),
)
def padded(subject: Subject) -> Measurement:
    """Decode step by step, with mask and positions at every step."""
    ids = subject.tokens(1, 20)
    pads = subject.tokens(1, 4, salt=5)
    text = torch.cat([torch.cat([pads, ids], 1), subject.tokens(1, 24, salt=6)])
    mask = torch.ones(2, 24, dtype=torch.bool, device=ids.device)
    mask[0, :4] = False
    positions = subject.positions(mask)
    cache, actual = _new(subject), []
    for start, stop in pairwise([0, 12, *range(13, 25)]):
        actual.append(subject.logits(text[:, start:stop], mask[:, :stop], positions[:, start:stop], cache))
    return Measurement(difference(torch.cat(actual, 1)[:1, 4:], subject.logits(ids)), "4 pads, 12 single steps")


@check(
    "cache.static",
    "A cache of fixed size gives what a growing one gives.",
    "slots that were never written looked at",
    needs=("cache",),
    causal=True,
    huggingface=True,
    uses=("static cache",),
)
def static(subject: Subject) -> Measurement:
    """Read a prompt and single tokens into the StaticCache of transformers."""
    ids = subject.tokens(1, 24)
    cache = _new(subject)
    cache.state = make_static_cache(subject)
    actual = [subject.logits(ids[:, a:b], cache=cache) for a, b in pairwise([0, 8, *range(9, 25)])]
    return Measurement(difference(torch.cat(actual, 1), subject.logits(ids)))


def make_static_cache(subject: Subject) -> Any:
    """Return a static cache for 32 tokens. Raises Inapplicable where the model has none."""
    from transformers import StaticCache

    if getattr(subject.adapter, "task", "") != "causal" or getattr(subject.adapter, "cache_name", "") not in KV_CACHES:
        raise Inapplicable("only decoders with a KV cache have one")
    if not getattr(subject.module, "_can_compile_fullgraph", True):
        raise Inapplicable("the model declares no support for a static cache")
    return StaticCache(config=subject.adapter.config, max_cache_len=32)  # type: ignore[attr-defined]


def _in_pieces(subject: Subject, stops: list[int]) -> Measurement:
    ids = subject.tokens(2, stops[-1])
    cache = _new(subject)
    actual = [subject.logits(ids[:, a:b], cache=cache) for a, b in pairwise([0, *stops])]
    size, position = worst(torch.cat(actual, 1), subject.logits(ids))
    return Measurement(size, f"largest at token {position} of {stops[-1]}", tokens=stops[-1])


def _new(subject: Subject) -> Any:
    return subject.adapter.new_cache()  # type: ignore[attr-defined]


def _short(fault: Exception) -> str:
    return str(fault).split("\n")[0][:120] or type(fault).__name__


_MASKED = 24
_PADDED = 4


@check(
    "cache.mask",
    "Under a mask of ones, one token at a time equals all at once.",
    "positions counted from the part of the mask that belongs to the new tokens",
    uses=("cached decoding", "left-padded generate"),
    needs=("cache", "mask"),
    causal=True,
)
def ones(subject: Subject) -> Measurement:
    """Read a prompt and single tokens with the mask that a tokenizer gives."""
    ids = subject.tokens(2, _MASKED)
    return _in_steps(subject, ids, torch.ones_like(ids, dtype=torch.bool))


@check(
    "cache.left_mask",
    "Padded on the left, under the mask alone, one token at a time equals all at once.",
    "pads that count at a decoding step and not in a whole text, or the other way round",
    uses=("left-padded generate", "left padding by the mask alone"),
    needs=("cache", "mask"),
    causal=True,
)
def left_mask(subject: Subject) -> Measurement:
    """Compare with the same padded rows in one pass, so that it does not matter whether pads count as positions."""
    ids = subject.tokens(2, _MASKED)
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :_PADDED] = False
    return _in_steps(subject, ids, mask)


def _in_steps(subject: Subject, ids: Tensor, mask: Tensor) -> Measurement:
    cache, actual = _new(subject), []
    for start, stop in pairwise([0, 10, *range(11, _MASKED + 1)]):
        actual.append(subject.logits(ids[:, start:stop], mask[:, :stop], cache=cache))
    kept = mask.unsqueeze(-1)
    whole = subject.logits(ids, mask)
    return Measurement(difference(torch.cat(actual, 1) * kept, whole * kept), f"{_MASKED - 10} single steps")


@check(
    "cache.prefill",
    "A batch of unequal rows read in chunks equals each row alone.",
    "a mask or positions cut wrongly at the border of a chunk",
    uses=("resume", "left-padded generate"),
    needs=("cache", "mask", "positions"),
    causal=True,
)
def prefill(subject: Subject) -> Measurement:
    """Read two rows, one with pads on the left, in chunks of seven; the first chunk of a row may be pads alone."""
    ids, pads = subject.tokens(2, _MASKED), 8
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[0, :pads] = False
    positions, cache, actual = subject.positions(mask), _new(subject), []
    for start, stop in pairwise([0, 7, 14, 21, _MASKED]):
        chunk = slice(start, stop)
        actual.append(subject.logits(ids[:, chunk], mask[:, :stop], positions[:, chunk], cache))
    together = torch.cat(actual, 1)
    rows = ((together[:1, pads:], ids[:1, pads:]), (together[1:], ids[1:]))
    return largest(*(Measurement(difference(row, subject.logits(alone)), "chunks of 7") for row, alone in rows))


@check(
    "cache.rollback_rows",
    "Drafts that one row rejects and another keeps leave no trace.",
    "one count of tokens for all rows; rejected drafts that are still attended to",
    uses=("rollback",),
    needs=("cache", "mask", "positions"),
    causal=True,
)
def rollback_rows(subject: Subject) -> Measurement:
    """Read five drafts in two rows; mask the last three of one row, and go on in both, each at its own position.

    All of it is shorter than the windows of 16 that the shrunk models have, which count slots and not positions.
    """
    if getattr(subject.adapter, "packs", False):
        raise Inapplicable("where a position falls the model begins a document")
    prompt, drafts, rest = subject.tokens(2, 5), subject.tokens(2, 5, salt=3), subject.tokens(2, 5, salt=4)
    cache, read = _new(subject), torch.cat([prompt, drafts], 1)
    mask = torch.ones(2, 15, dtype=torch.bool, device=prompt.device)
    subject.logits(read, mask[:, :10], subject.arange(2, 10), cache)
    mask[0, 7:10] = False
    positions = torch.cat([subject.arange(1, 5, 7), subject.arange(1, 5, 10)])
    after = subject.logits(rest, mask, positions, cache)
    kept = [torch.cat([read[row : row + 1, :count], rest[row : row + 1]], 1) for row, count in ((0, 7), (1, 10))]
    pairs = ((after[row : row + 1], subject.logits(text)[:, -5:]) for row, text in enumerate(kept))
    return largest(*(Measurement(difference(row, alone), "2 and 5 drafts of 5 kept") for row, alone in pairs))


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
