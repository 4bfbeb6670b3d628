"""One text must leave nothing behind for the next, nor its beginning for its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject

_SHORT, _MEDIUM, _LONG = 12, 44, 96
_MOST = 2048  # the longest original length on whose other side a text is read
_STEPS = 4


@check(
    "state.short",
    "A long text changes nothing for a short one after it.",
    "a table or an offset kept from the last call",
    uses=("one text after another",),
)
def short(subject: Subject) -> Measurement:
    """Read a short text before and after a long one."""
    return _after_long(subject, _SHORT)


@check(
    "state.medium",
    "A long text changes nothing for a medium one after it.",
    "frequencies stretched for a long text and never drawn back",
    uses=("one text after another",),
)
def medium(subject: Subject) -> Measurement:
    """Do the same with a text beyond the original length of the scaling, where there is one."""
    return _after_long(subject, _MEDIUM)


@check(
    "cache.across",
    "Decoding with a cache across the model's original length equals one pass.",
    "frequencies that change there, while the keys in the cache keep the old ones",
    uses=("cached decoding",),
    needs=("cache",),
    causal=True,
)
def across(subject: Subject) -> Measurement:
    """Read a prompt that ends before the original length, and single tokens beyond it."""
    original = find_original_length(subject)
    if original is None:
        raise Inapplicable("no original length in the configuration that a text could cross")
    if original > _MOST:
        raise Inapplicable(f"its original length is {original:,} tokens: texts up to {_MOST:,} are tried here")
    ids = subject.tokens(1, original + _STEPS)
    cache = subject.adapter.new_cache()  # type: ignore[attr-defined]
    stops = [0, original - _STEPS, *range(original - _STEPS + 1, ids.shape[1] + 1)]
    actual = [subject.logits(ids[:, a:b], cache=cache) for a, b in pairwise(stops)]
    size = difference(torch.cat(actual, 1), subject.logits(ids))
    return Measurement(size, f"single tokens across {original:,}", tokens=ids.shape[1])


def find_original_length(subject: Subject) -> int | None:
    """Return the length that a model was trained for where scaling of its positions has another; None without one."""
    config: Any = getattr(subject.adapter, "config", None)
    rope = getattr(config, "rope_parameters", None)
    parts = [rope, *(value for value in rope.values() if isinstance(value, dict))] if isinstance(rope, dict) else []
    lengths = [part.get("original_max_position_embeddings") for part in parts]
    lengths.append(getattr(config, "original_max_position_embeddings", None))
    lengths += [subject.facts.limit] if subject.facts.stretches else []
    return min((length for length in lengths if isinstance(length, int) and length > _STEPS), default=None)


def _after_long(subject: Subject, length: int) -> Measurement:
    """Read texts before and after a longer one; medium ones at and beyond the original length, if any."""
    longest, original = _longest(subject), find_original_length(subject)
    lengths = [length]
    if original is not None and original <= _MOST:
        longest = max(longest, 2 * original)
        lengths = [length] if length == _SHORT else [original - _STEPS, original, original * 5 // 4]
    if longest < 2 * _SHORT:
        raise Inapplicable(f"the model reads only {longest} tokens")
    effects = []
    for count in lengths:
        ids = subject.tokens(1, min(count, longest - _STEPS))
        before = subject.logits(ids)
        subject.logits(subject.tokens(1, longest, salt=2))
        size = difference(subject.logits(ids), before)
        effects.append(Measurement(size, f"{ids.shape[1]} tokens after {longest}", tokens=longest))
        subject = subject.copy_untouched()
    return largest(*effects)


def _longest(subject: Subject) -> int:
    """Beyond the claimed length only where angles can be computed for any position."""
    limit = subject.facts.limit
    bounded = subject.facts.absolute or "RoPE" not in subject.facts.scheme
    return min(_LONG, limit - 4 - subject.facts.first) if limit and bounded else _LONG
