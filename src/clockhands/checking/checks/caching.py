"""Decoding with a cache must equal one pass over the whole text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, worst
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
