"""Differences that a scheme declares: properties of a sound model, and uses that are not claimed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clockhands.checking.checks.lengths import repeated
from clockhands.checking.fitting.calls import mixes_documents
from clockhands.checking.fitting.reading import PassReading, carries_beside_attention, find_entries, find_seen, read
from clockhands.checking.fitting.rotation import scales_by_place, turns_on_ellipses
from clockhands.checking.models.subject import Subject


@dataclass(frozen=True)
class Declared:
    """Where a scheme declares a difference, by the beginnings of the checks' names, why, and what is safe instead."""

    checks: tuple[str, ...]
    applies: Callable[[Subject], bool]
    verdict: Literal["PROPERTY", "WARN"]
    reason: str
    safe: str = ""


# What says by its name that it gives no place; a model in which nothing was found has no such excuse.
_SILENT = {"NoPosition", "Window", "RePo"}
_SUMS = {"CARoPE", "Forgetting", "PaTH", "SelectiveRoPE"}  # what sums over the tokens before, those under a mask too


def _read_schemes(subject: Subject) -> set[str]:
    return set(subject.facts.scheme.split(" + "))


def _takes_no_positions(subject: Subject) -> bool:
    """Whether no positions can be given; of an export whose reference takes them they were lost, which is a fault."""
    reference = getattr(subject.adapter, "reference", None)
    lost = reference is not None and reference.takes("positions")
    return _counts_places(subject) and not subject.takes("positions") and not lost


def _read_one_token(subject: Subject, apart: int = 0) -> PassReading:
    """Read a text of one token 15 times over, at positions so far apart; nothing of what cannot be read so."""

    def run(twin: Subject, ids: Tensor) -> Tensor:
        return twin.logits(ids, positions=apart * twin.arange(1, 15)) if apart else twin.logits(ids)

    if subject.module is not None:
        with contextlib.suppress(Exception):  # a model may raise anything on such a text
            entries = find_entries(subject.copy_untouched())[:1]
            return read(subject.copy_untouched(), entries, subject.tokens(1, 1).repeat(1, 15), run)
    return PassReading({}, ())


def _reads_so(subject: Subject, test: Callable[[Tensor, Tensor], bool], *apart: int) -> bool:
    """Whether queries and keys of one token are in some attention as a test says, also at positions so far apart."""
    readings = [_read_one_token(subject, by) for by in (0, *apart)]
    return any(test(x.q_BHSK, x.k_BHTK) for reading in readings for x in reading.attentions.values())


def _adds_positions(subject: Subject) -> bool:
    """Whether one token enters the first block as another vector at each place, as with sinusoids."""
    states = _read_one_token(subject).states
    return any(float(torch.pdist(state[0].double()).min()) > 1e-3 * float(state.abs().max()) for state in states)


def _counts_places(subject: Subject) -> bool:
    """Whether a token is told its place by itself, by a vector or by a temperature."""
    return subject.facts.absolute or _adds_positions(subject) or _reads_so(subject, scales_by_place, 17, 601)


def _carries_alone(subject: Subject) -> bool:
    """Whether a state or a convolution carries what stands before, and attention does not see other documents too."""
    carried = subject.facts.recurrent or (  # a mistake by which later tokens reach earlier ones is neither
        subject.causal and carries_beside_attention(subject) and not carries_beside_attention(subject, -1)
    )
    return carried and not mixes_documents(subject)


def _has_short_window(subject: Subject) -> bool:
    """Whether some layer hides keys of a text as short as that of ``cache.rollback_rows`` from its last token."""
    seen = [find_seen(item.logits_BHST)[..., -1, :] for item in _read_one_token(subject).attentions.values()]
    return (subject.facts.window or 15) < 15 or not all(bool(keys.flatten(0, -2).any(0).all()) for keys in seen)


_DECLARED = (
    Declared(
        ("packing.positions",),
        lambda subject: not subject.causal,
        "WARN",
        "an encoder takes position_ids as positions only, never as borders of documents",
        "a four-dimensional block mask",
    ),
    Declared(
        ("order.matters",),
        lambda subject: not subject.causal and _read_schemes(subject) <= _SILENT,
        "PROPERTY",
        "no encoding tells the places apart, and no mask either: a bag of words",
    ),
    Declared(
        ("order.places",),
        lambda subject: not (subject.facts.absolute or hasattr(subject.adapter, "other")),
        "WARN",
        "the causal mask alone tells the places apart: meant of a model without an encoding (NoPE) only",
    ),
    Declared(
        ("shift",),
        lambda subject: subject.facts.absolute or _adds_positions(subject),
        "PROPERTY",
        "absolute positions: every place has its own vector",
    ),
    Declared(
        ("shift",),
        lambda subject: _reads_so(subject, scales_by_place, 17, 601),  # it may grow once in many places
        "PROPERTY",
        "a temperature by position: logits of attention change with the place of their query, not with distances alone",
    ),
    Declared(
        ("shift",),
        lambda subject: _reads_so(subject, turns_on_ellipses),
        "PROPERTY",
        "channels get gains of their own after the rotation, as by a norm behind it: not distances alone count",
    ),
    Declared(
        ("padding.left.mask", "generate.left_padded"),
        _takes_no_positions,
        "PROPERTY",
        "absolute positions count the pads, and the model takes no position_ids",
        "pad on the right, or sort the rows by length",
    ),
    Declared(
        ("padding.left.mask",),
        lambda subject: _counts_places(subject) and subject.takes("positions"),
        "PROPERTY",
        "absolute positions count the pads",
        "pass position_ids made from the mask",
    ),
    Declared(
        ("positions.explicit", "length.claimed"),
        lambda subject: subject.facts.first > 0,
        "PROPERTY",
        "the model counts positions from padding_idx + 1",
        "let the model make position_ids, or add the offset",
    ),
    Declared(
        (
            *("padding.", "axes.packing", "cache.padded", "cache.prefill", "cache.rollback_rows", "shift"),
            *("generate.left_padded", "batch.unequal"),
        ),
        lambda subject: subject.facts.recurrent,
        "PROPERTY",
        "a running state or convolution carries what stands before",
        "pad on the right; no packing",
    ),
    Declared(
        ("packing.", "cache.rollback_rows"),
        _carries_alone,
        "PROPERTY",
        "beside attention a running state or a convolution carries what stands before, whatever a mask says",
        "no packing; roll all rows back alike",
    ),
    Declared(
        ("cache.rollback_rows",),
        lambda subject: bool(_read_schemes(subject) & _SUMS),
        "PROPERTY",
        "what a token adds to a running sum stays there, also under a mask",
        "roll all rows back alike",
    ),
    Declared(
        ("cache.rollback_rows",),
        _has_short_window,
        "PROPERTY",
        "a window counts the places of the cache, those of rejected drafts too",
        "roll all rows back alike",
    ),
    Declared(
        ("packing.mask", "packing.cache"),
        lambda subject: True,
        "WARN",
        "documents are told by position_ids only without a mask and without a cache",
        "pass no attention_mask and use_cache=False, or a four-dimensional mask",
    ),
    Declared(
        ("length.beyond",),
        lambda subject: bool(repeated(subject)),
        "WARN",
        "a longer text is read without a word, with places that other tokens had",
        "stay within the claimed length",
    ),
    Declared(("length.beyond", "size.odd"), lambda subject: True, "WARN", "the message does not say what was wrong"),
    Declared(
        ("state.", "cache.", "causal.", "padding.", "generate.", "batch.unequal"),
        lambda subject: subject.facts.hashed,
        "PROPERTY",
        "hashed attention: the buckets depend on all tokens, also on later ones and on pads",
    ),
    Declared(
        (
            *("shift", "causal.prefix", "cache.steps", "cache.across", "cache.chunks", "cache.mask", "cache.left_mask"),
            *("cache.prefill", "cache.prefix", "cache.reorder", "generate."),
        ),
        lambda subject: subject.facts.stretches,
        "PROPERTY",
        "the frequencies change when the text crosses the original length; keys in the cache keep the old ones",
        "stay on one side of the original length, or read the whole text again after crossing it",
    ),
)


def find_property(check: str, subject: Subject) -> Declared | None:
    """Return what the scheme declares of this difference for this subject; None if nothing."""
    for item in _DECLARED:
        with contextlib.suppress(Exception):  # a model may raise anything where it is read
            if check.startswith(item.checks) and item.applies(subject):
                return item
    return None
