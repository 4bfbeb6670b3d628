"""Positions given by hand: the default ones change nothing, a common shift only what the scheme says."""

from __future__ import annotations

from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject

_LENGTH = 20


@check(
    "positions.explicit",
    "position_ids of 0, 1, 2 ... give what no position_ids give.",
    "an offset between the argument and the default",
    needs=("positions",),
    causal=None,
    uses=("given position_ids",),
)
def explicit(subject: Subject) -> Measurement:
    """Pass positions from 0, whatever the model's own first number is."""
    ids = subject.tokens(2, _LENGTH)
    positions = subject.arange(2, _LENGTH) - subject.facts.first
    note = f"the model counts from {subject.facts.first}" if subject.facts.first else ""
    return Measurement(difference(subject.logits(ids, positions=positions), subject.logits(ids)), note)


@check(
    "positions.matter",
    "position_ids reach the logits.",
    "an argument accepted and dropped",
    needs=("positions",),
    uses=("given position_ids", "left padding with position_ids"),
)
def matter(subject: Subject) -> Measurement:
    """Pass stretched positions, which must change something unless no part of the model reads them."""
    silent = "RoPE" not in subject.facts.scheme.split(" + ") and not subject.facts.absolute
    if silent and hasattr(subject.adapter, "config"):
        raise Inapplicable("no part of the model reads positions")
    ids = subject.tokens(1, 8)
    stretched = subject.arange(1, 8) * 3 - 2 * subject.facts.first
    gap = difference(_contiguous(subject, ids, stretched), subject.logits(ids))
    return Measurement(gap, wanted=True)


@check(
    "shift",
    "All positions moved by the same amount change nothing.",
    "angles paired wrongly; an offset added once only",
    needs=("positions",),
    uses=("moved positions",),
)
def shift(subject: Subject) -> Measurement:
    """Shift by 5 and by 60 (less where the table ends sooner)."""
    ids = subject.tokens(2, _LENGTH)
    before = subject.logits(ids, positions=subject.arange(2, _LENGTH))
    far = min(60, (subject.facts.limit or 1000) - _LENGTH - 4)
    moved = (subject.logits(ids, positions=subject.arange(2, _LENGTH, by)) for by in (5, max(far, 6)))
    return largest(*(Measurement(difference(after, before)) for after in moved))


def _contiguous(subject: Subject, ids: Tensor, positions: Tensor) -> Tensor:
    """Logits at stretched positions through a cache, so that the gaps are not taken for documents."""
    cache = subject.adapter.new_cache() if subject.takes("cache") else None  # type: ignore[attr-defined]
    return subject.logits(ids, positions=positions, cache=cache)
