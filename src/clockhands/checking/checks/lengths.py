"""Texts of every length, one after another: up to the claimed length, beyond it, and after longer ones."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import (
    TOLERANCE,
    Inapplicable,
    Measurement,
    check,
    difference,
    put_in,
    read_across_gaps,
    read_in_pieces,
)
from clockhands.checking.models.subject import Subject
from clockhands.checking.models.tiny import build_model

_CLEAR = re.compile(r"length|position|maximum|too long|exceed|longer", re.IGNORECASE)
_LARGEST = 2048  # the longest claimed, and original, length at which whole texts are read
_SHORT, _MEDIUM, _LONG = 12, 44, 96
_STEPS = 4


@check("length.claimed", "a table shorter than the claim", uses=("texts of the claimed length",))
def _claimed(subject: Subject) -> Measurement:
    """The model reads a text as long as it claims, with another place for every token."""
    limit = _get_limit(subject)
    read, fault = _try_length(subject, limit)
    if fault is None and limit <= _LARGEST and subject.facts.absolute and subject.takes("positions"):
        count = limit - subject.facts.first - 1
        ids = subject.tokens(1, 2).repeat(count, 1)
        places = torch.stack([torch.zeros_like(ids[:, 0]), torch.arange(1, count + 1, device=ids.device)], 1)
        with contextlib.suppress(Exception):  # it reads such a text, but not such places
            logits = read_across_gaps(subject.copy_untouched(), ids, places + subject.facts.first)[:, -1:]
            same = [place for place in range(1, count) if difference(logits[place - 1], logits[-1]) <= TOLERANCE]
            fault = f"the last place is the same as place {same[0]}" if len(same) > 1 else None
    return Measurement(float(fault is not None), f"{read}: {fault}" if fault else read)


@check(
    "length.beyond",
    "an index error far from its cause; places that begin again, or stay at the last",
    uses=("texts beyond the claimed length",),
)
def _beyond(subject: Subject) -> Measurement:
    """Beyond the claimed length the model runs on with new places, or refuses with a message that says why."""
    read, fault = _try_length(subject, _get_limit(subject) + 8)
    if fault is None:
        repetition = repeated(subject)
        return Measurement(float(bool(repetition)), f"{read}: runs on{repetition}")
    return Measurement(float(not _CLEAR.search(fault)), f"{read}: refused with '{fault}'")


@check(
    "length.mask",
    "a mask that is cut, or made of another length than the text",
    uses=("texts of the claimed length",),
    needs=("mask",),
)
def _full_mask(subject: Subject) -> Measurement:
    """At the claimed length a mask of ones changes nothing."""
    limit = _get_limit(subject)
    if limit > _LARGEST:
        raise Inapplicable(f"{limit} tokens are too many to try here")
    ids = subject.tokens(1, limit - subject.facts.first)
    mask = torch.ones_like(ids, dtype=torch.bool)
    return Measurement(difference(subject.logits(ids, mask), subject.logits(ids)), f"{ids.shape[1]} tokens")


@check("length.short", "an axis of length 1 that is dropped or broadcast", uses=("one text after another", "batches"))
def _short(subject: Subject) -> Iterator[Measurement]:
    """Texts of one to five tokens are read as in a batch and as the beginnings of longer ones."""
    ids = subject.tokens(2, 12)
    whole = subject.logits(ids)
    for length in range(1, 6):
        alone, both = subject.logits(ids[:1, :length]), subject.logits(ids[:, :length])
        yield Measurement(difference(both[:1], alone), f"{length} tokens, in a batch of two")
        if subject.causal and subject.aligned:
            yield Measurement(difference(both, whole[:, :length]), f"{length} tokens of 12")


@check("size.odd", "a rotation one column short", huggingface=True, uses=("a changed configuration",))
def _odd(subject: Subject) -> Measurement:
    """An odd head size works, or is refused with a message that says why."""
    module: Any = subject.module
    adapter: Any = subject.adapter
    if not getattr(adapter, "shrunk", False):
        raise Inapplicable("rebuilds the model: only with --tiny")
    raw = copy.deepcopy(module.config.to_dict())
    if not isinstance(raw.get("head_dim"), int) or "RoPE" not in subject.facts.scheme:
        raise Inapplicable("no head_dim to set, or nothing rotated")
    raw["head_dim"] = 15
    try:
        model = build_model(type(module.config).from_dict(raw), adapter.task, cls=type(module))
        put_in(subject, model).adapter.logits(subject.tokens(1, 8))
    except Exception as fault:  # whatever is raised is what is judged
        message = " ".join(str(fault).split())[:120]
        clear = bool(re.search(r"\b(odd|even|divisible|head_dim|multiple)\b", message))
        return Measurement(float(not clear), f"refused with '{message}'")
    return Measurement(0.0, "works")


def _get_limit(subject: Subject) -> int:
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
        near, other, far = [_read_at(twin, place) for place in (4, 7, limit + 4)]
        if difference(other, near) <= TOLERANCE:
            return ""
        if difference(far, near) <= TOLERANCE:
            return ", its places begin again from the first"
        stays = subject.facts.absolute and difference(far, _read_at(twin, limit - 1)) <= TOLERANCE
        return ", all its places there are the last" if stays else ""
    except Exception:  # it reads such a text, but not such places
        return ""


def _read_at(subject: Subject, place: int) -> Tensor:
    """Return the logits [4, V] of a token at ``place`` behind one at the first."""
    ids = subject.tokens(4, 2)
    positions = torch.tensor([[0, place]], device=ids.device).expand(4, -1) + subject.facts.first
    return read_across_gaps(subject, ids, positions)[:, -1]


def _try_length(subject: Subject, length: int) -> tuple[str, str | None]:
    """What was read on a fresh copy, and what that raised: a text of that length, of a very long one its last place."""
    twin = subject.copy_model(subject.seed, subject.dtype) if subject.module else subject
    far = length > _LARGEST + 8
    read = f"a token at {length - 1}" if far else f"{length} tokens"
    try:
        _read_at(twin, length - 1 - subject.facts.first) if far else twin.logits(twin.tokens(1, length))
    except Exception as fault:  # whatever is raised is what is judged
        return read, " ".join(str(fault).split())[:120] or type(fault).__name__
    return read, None


@check("state.short", "a table or an offset kept from the last call", uses=("one text after another",))
def _short_after_long(subject: Subject) -> Iterator[Measurement]:
    """A long text changes nothing for a short one after it."""
    return _compare_after_long(subject, _SHORT)


@check("state.medium", "frequencies stretched for a long text and never drawn back", uses=("one text after another",))
def _medium_after_long(subject: Subject) -> Iterator[Measurement]:
    """A long text changes nothing for a medium one after it."""
    return _compare_after_long(subject, _MEDIUM)


def _compare_after_long(subject: Subject, length: int) -> Iterator[Measurement]:
    """Read texts before and after a longer one; those of medium length at and beyond the original length, if any."""
    # Beyond the claimed length only where angles can be computed for any position.
    limit, bounded = subject.facts.limit, subject.facts.absolute or "RoPE" not in subject.facts.scheme
    longest = min(_LONG, limit - 4 - subject.facts.first) if limit and bounded else _LONG
    original, lengths = _find_original_length(subject), [length]
    if original is not None and original <= _LARGEST:
        longest = max(longest, 2 * original)
        lengths = [length] if length == _SHORT else [original - _STEPS, original, original * 5 // 4]
    if longest < 2 * _SHORT:
        raise Inapplicable(f"the model reads only {longest} tokens")
    for count in lengths:
        ids = subject.tokens(1, min(count, longest - _STEPS))
        before = subject.logits(ids)
        subject.logits(subject.tokens(1, longest, salt=2))
        size = difference(subject.logits(ids), before)
        yield Measurement(size, f"{ids.shape[1]} tokens after {longest}", tokens=longest)
        subject = subject.copy_untouched()


@check(
    "cache.across",
    "frequencies that change there, while the keys in the cache keep the old ones",
    uses=("cached decoding",),
    needs=("cache",),
    causal=True,
)
def _across(subject: Subject) -> Measurement:
    """Decoding with a cache across the model's original length equals one pass."""
    original = _find_original_length(subject)
    if original is None:
        raise Inapplicable("no original length in the configuration that a text could cross")
    if original > _LARGEST:
        raise Inapplicable(f"its original length is {original:,} tokens: texts up to {_LARGEST:,} are tried here")
    ids = subject.tokens(1, original + _STEPS)
    actual = read_in_pieces(subject, ids, range(original - _STEPS, ids.shape[1] + 1))
    return Measurement(
        difference(actual, subject.logits(ids)), f"single tokens across {original:,}", tokens=ids.shape[1]
    )


def _find_original_length(subject: Subject) -> int | None:
    """Return the length that a model was trained for where scaling of its positions has another; None without one."""
    config: Any = getattr(subject.adapter, "config", None)
    rope = getattr(config, "rope_parameters", None)
    parts = [rope, *(value for value in rope.values() if isinstance(value, dict))] if isinstance(rope, dict) else []
    lengths = [part.get("original_max_position_embeddings") for part in parts]
    lengths.append(getattr(config, "original_max_position_embeddings", None))
    lengths += [subject.facts.limit] if subject.facts.stretches else []
    return min((length for length in lengths if isinstance(length, int) and length > _STEPS), default=None)
