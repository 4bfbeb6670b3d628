"""Differences that a scheme declares: no fault, and what is safe instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from clockhands.checking.checks.lengths import repeated
from clockhands.checking.models.subject import Subject


@dataclass(frozen=True)
class Declared:
    """Why a difference is expected, and what to do instead."""

    verdict: Literal["PROPERTY", "WARN"]
    reason: str
    safe: str = ""


@dataclass(frozen=True)
class _Rule:
    checks: tuple[str, ...]
    applies: Callable[[Subject], bool]
    answer: Declared


def _absolute(subject: Subject) -> bool:
    return subject.facts.absolute


def _absolute_side(subject: Subject) -> bool:
    """Whether no positions can be given; of an export whose reference takes them they were lost, which is a fault."""
    reference = getattr(subject.adapter, "reference", None)
    lost = reference is not None and reference.takes("positions")
    return subject.facts.absolute and not subject.takes("positions") and not lost


def _recurrent(subject: Subject) -> bool:
    return subject.facts.recurrent


def _offset(subject: Subject) -> bool:
    return subject.facts.first > 0


# What says by its name that it gives no place; a model in which nothing was found has no such excuse.
_SILENT = {"NoPosition", "Window", "RePo"}


# What sums over the tokens before, those under a mask too.
_SUMS = {"CARoPE", "Forgetting", "PaTH", "SelectiveRoPE"}


def _sums(subject: Subject) -> bool:
    return bool(set(subject.facts.scheme.split(" + ")) & _SUMS)


def _bag_of_words(subject: Subject) -> bool:
    return not subject.causal and set(subject.facts.scheme.split(" + ")) <= _SILENT


def _always(subject: Subject) -> bool:
    return True


_RULES = (
    _Rule(
        ("packing.positions",),
        lambda subject: not subject.causal,
        Declared(
            "WARN",
            "an encoder takes position_ids as positions only, never as borders of documents",
            "a four-dimensional block mask",
        ),
    ),
    _Rule(
        ("order.matters",),
        _bag_of_words,
        Declared("PROPERTY", "no encoding tells the places apart, and no mask either: a bag of words"),
    ),
    _Rule(
        ("order.places",),
        lambda subject: not (subject.facts.absolute or hasattr(subject.adapter, "other")),
        Declared(
            "WARN", "the causal mask alone tells the places apart: meant of a model without an encoding (NoPE) only"
        ),
    ),
    _Rule(("shift",), _absolute, Declared("PROPERTY", "absolute positions: every place has its own vector")),
    _Rule(
        ("padding.left.mask", "generate.left_padded"),
        _absolute_side,
        Declared(
            "PROPERTY",
            "absolute positions count the pads, and the model takes no position_ids",
            "pad on the right, or sort the rows by length",
        ),
    ),
    _Rule(
        ("padding.left.mask",),
        lambda subject: subject.facts.absolute and subject.takes("positions"),
        Declared("PROPERTY", "absolute positions count the pads", "pass position_ids made from the mask"),
    ),
    _Rule(
        ("positions.explicit", "length.claimed"),
        _offset,
        Declared(
            "PROPERTY",
            "the model counts positions from padding_idx + 1",
            "let the model make position_ids, or add the offset",
        ),
    ),
    _Rule(
        (
            *(
                "padding.",
                "packing.",
                "axes.packing",
                "cache.padded",
                "cache.prefill",
                "cache.rollback_rows",
                "shift",
            ),
            *("generate.left_padded", "batch."),
        ),
        _recurrent,
        Declared(
            "PROPERTY", "a running state or convolution carries what stands before", "pad on the right; no packing"
        ),
    ),
    _Rule(
        ("cache.rollback_rows",),
        _sums,
        Declared(
            "PROPERTY", "what a token adds to a running sum stays there, also under a mask", "roll all rows back alike"
        ),
    ),
    _Rule(
        ("packing.mask", "packing.cache"),
        _always,
        Declared(
            "WARN",
            "documents are told by position_ids only without a mask and without a cache",
            "pass no attention_mask and use_cache=False, or a four-dimensional mask",
        ),
    ),
    _Rule(
        ("length.beyond",),
        lambda subject: bool(repeated(subject)),
        Declared(
            "WARN",
            "a longer text is read without a word, with places that other tokens had",
            "stay within the claimed length",
        ),
    ),
    _Rule(
        ("length.beyond", "size.odd"),
        _always,
        Declared("WARN", "the message does not say what was wrong"),
    ),
    _Rule(
        ("state.", "cache.", "causal.", "padding.", "generate.", "batch.unequal"),
        lambda subject: subject.facts.hashed,
        Declared("PROPERTY", "hashed attention: the buckets depend on all tokens, also on later ones and on pads"),
    ),
    _Rule(
        (
            *("shift", "causal.prefix", "cache.steps", "cache.across", "cache.chunks", "cache.mask", "cache.left_mask"),
            *("cache.prefill", "cache.prefix", "cache.reorder", "generate."),
        ),
        lambda subject: subject.facts.stretches,
        Declared(
            "PROPERTY",
            "the frequencies change when the text crosses the original length; keys in the cache keep the old ones",
            "stay on one side of the original length, or read the whole text again after crossing it",
        ),
    ),
)


def find_property(check: str, subject: Subject) -> Declared | None:
    """Return what the scheme declares of this difference for this subject; None if nothing."""
    for rule in _RULES:
        if any(check == name or check.startswith(name) for name in rule.checks) and rule.applies(subject):
            return rule.answer
    return None
