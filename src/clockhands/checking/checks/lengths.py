"""Texts of every length, one after another: up to the claimed length, beyond it, and after longer ones."""

from __future__ import annotations

import copy
import re
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import build_model

_CLEAR = re.compile(r"length|position|maximum|too long|exceed|longer", re.IGNORECASE)
_LARGEST = 2048


@check(
    "length.claimed",
    "The model reads a text as long as it claims.",
    "a table shorter than the claim",
    uses=("texts of the claimed length",),
)
def claimed(subject: Subject) -> Measurement:
    """max_position_embeddings tokens."""
    read, fault = _tried(subject, _limit(subject))
    return Measurement(float(fault is not None), f"{read}: {fault}" if fault else read)


@check(
    "length.beyond",
    "Beyond the claimed length the model runs on with new places, or refuses with a message that says why.",
    "an index error far from its cause; places that begin again, or stay at the last",
    uses=("texts beyond the claimed length",),
)
def beyond(subject: Subject) -> Measurement:
    """Eight tokens more than claimed."""
    read, fault = _tried(subject, _limit(subject) + 8)
    if fault is None:
        repetition = repeated(subject)
        return Measurement(float(bool(repetition)), f"{read}: runs on{repetition}")
    clear = bool(_CLEAR.search(fault))
    return Measurement(float(not clear), f"{read}: refused with '{fault}'")


@check(
    "length.mask",
    "At the claimed length a mask of ones changes nothing.",
    "a mask that is cut, or made of another length than the text",
    uses=("texts of the claimed length",),
    needs=("mask",),
)
def full_mask(subject: Subject) -> Measurement:
    """Read the longest text that the model claims, with a mask and without."""
    limit = _limit(subject)
    if limit > _LARGEST:
        raise Inapplicable(f"{limit} tokens are too many to try here")
    ids = subject.tokens(1, limit - subject.facts.first)
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Measurement(difference(subject.logits(ids, mask), subject.logits(ids)), f"{ids.shape[1]} tokens")


@check(
    "length.short",
    "Texts of one to five tokens are read as in a batch and as the beginnings of longer ones.",
    "an axis of length 1 that is dropped or broadcast",
    uses=("one text after another", "batches"),
)
def short(subject: Subject) -> Measurement:
    """Every length from one to five: a row alone against two rows, and, if causal, against the longer text."""
    ids = subject.tokens(2, 12)
    whole = subject.logits(ids)
    effects = []
    for length in range(1, 6):
        alone, both = subject.logits(ids[:1, :length]), subject.logits(ids[:, :length])
        effects.append(Measurement(difference(both[:1], alone), f"{length} tokens, in a batch of two"))
        if subject.causal and subject.aligned:
            effects.append(Measurement(difference(both, whole[:, :length]), f"{length} tokens of 12"))
    return largest(*effects)


@check(
    "size.odd",
    "An odd head size works, or is refused with a message that says why.",
    "a rotation one column short",
    huggingface=True,
    uses=("a changed configuration",),
)
def odd(subject: Subject) -> Measurement:
    """head_dim 15 in place of 16."""
    module: Any = subject.module
    if not getattr(subject.adapter, "shrunk", False):
        raise Inapplicable("rebuilds the model: only with --tiny")
    raw = copy.deepcopy(module.config.to_dict())
    if not isinstance(raw.get("head_dim"), int) or "RoPE" not in subject.facts.scheme:
        raise Inapplicable("no head_dim to set, or nothing rotated")
    raw["head_dim"] = 15
    try:
        model = build_model(type(module.config).from_dict(raw), subject.adapter.task, cls=type(module))  # type: ignore
        type(subject.adapter)(model, subject.adapter.task).logits(subject.tokens(1, 8))  # type: ignore
    except Exception as fault:  # whatever is raised is what is judged
        message = " ".join(str(fault).split())[:120]
        clear = bool(re.search(r"\b(odd|even|divisible|head_dim|multiple)\b", message))
        return Measurement(float(not clear), f"refused with '{message}'")
    return Measurement(0.0, "works")


def _limit(subject: Subject) -> int:
    limit = subject.facts.limit
    if limit is None:
        raise Inapplicable("the model claims no length")
    if limit > _LARGEST and not subject.takes("positions"):
        raise Inapplicable(f"{limit} tokens are too many to try here")
    return limit


def repeated(subject: Subject) -> str:
    """Which place a token beyond the claimed length is given, if it is one that was there before; empty if it is new.

    The second of two tokens stands there, so that a place is told by itself or by its distance; empty also where places
    cannot be given, or are not heard. Only of tables it is told that places stay at the last: far buckets are alike on
    purpose.
    """
    limit = subject.facts.limit
    if limit is None or not subject.takes("positions"):
        return ""
    twin = subject.copy_model(subject.seed, subject.dtype) if subject.module else subject
    try:
        near, other, far = (_at(twin, place) for place in (4, 7, limit + 4))
        if difference(other, near) <= TOLERANCE:
            return ""
        if difference(far, near) <= TOLERANCE:
            return ", its places begin again from the first"
        stays = subject.facts.absolute and difference(far, _at(twin, limit - 1)) <= TOLERANCE
        return ", all its places there are the last" if stays else ""
    except Exception:  # it reads such a text, but not such places
        return ""


def _at(subject: Subject, place: int) -> Tensor:
    """The logits of a token at ``place`` behind one at the first; in a cache, so that the gap is no border."""
    ids = subject.tokens(4, 2)
    positions = torch.tensor([[0, place]], device=ids.device).expand(4, -1) + subject.facts.first
    cache = subject.adapter.new_cache() if subject.takes("cache") else None  # type: ignore[attr-defined]
    return subject.logits(ids, positions=positions, cache=cache)[:, -1]


def _tried(subject: Subject, length: int) -> tuple[str, str | None]:
    """What was read on a fresh copy, and what that raised: a text of that length, of a very long one its last place."""
    twin = subject.copy_model(subject.seed, subject.dtype) if subject.module else subject
    far = length > _LARGEST + 8
    read = f"a token at {length - 1}" if far else f"{length} tokens"
    try:
        _at(twin, length - 1 - subject.facts.first) if far else twin.logits(twin.tokens(1, length))
    except Exception as fault:  # whatever is raised is what is judged
        return read, " ".join(str(fault).split())[:120] or type(fault).__name__
    return read, None


_SHORT, _MEDIUM, _LONG = 12, 44, 96
_MOST = 2048  # the longest original length on whose other side a text is read
_STEPS = 4


@check(
    "state.short",
    "A long text changes nothing for a short_after_long one after it.",
    "a table or an offset kept from the last call",
    uses=("one text after another",),
)
def short_after_long(subject: Subject) -> Measurement:
    """Read a short_after_long text before and after a long one."""
    return _after_long(subject, _SHORT)


@check(
    "state.medium",
    "A long text changes nothing for a medium_after_long one after it.",
    "frequencies stretched for a long text and never drawn back",
    uses=("one text after another",),
)
def medium_after_long(subject: Subject) -> Measurement:
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
    original = _find_original_length(subject)
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


def _find_original_length(subject: Subject) -> int | None:
    """Return the length that a model was trained for where scaling of its positions has another; None without one."""
    config: Any = getattr(subject.adapter, "config", None)
    rope = getattr(config, "rope_parameters", None)
    parts = [rope, *(value for value in rope.values() if isinstance(value, dict))] if isinstance(rope, dict) else []
    lengths = [part.get("original_max_position_embeddings") for part in parts]
    lengths.append(getattr(config, "original_max_position_embeddings", None))
    lengths += [subject.facts.limit] if subject.facts.stretches else []
    return min((length for length in lengths if isinstance(length, int) and length > _STEPS), default=None)


def _after_long(subject: Subject, length: int) -> Measurement:
    """Read texts before and after a longer one; medium_after_long ones at and beyond the original length, if any."""
    longest, original = _longest(subject), _find_original_length(subject)
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
