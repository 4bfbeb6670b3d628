"""Positions given by hand: the default ones change nothing, a common shift only what the scheme says."""

from __future__ import annotations

from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject

_LENGTH = 20
_BORDERS = (250, 300, 2040, 4000, 32760, 40000)
"""Around 256, 2,048 and 32,768, where numbers of 8 bits, of float16 and bfloat16, and of 16 bits come to their end."""
_ROUNDING = 2.5e-6  # of an angle, in float32, for each position further, and what weights make of it


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
    """Shift by 5 and by 60 (less where the table ends sooner), and to where positions of 8 and 16 bits end."""
    ids = subject.tokens(2, _LENGTH)
    before = subject.logits(ids, positions=subject.arange(2, _LENGTH))
    far = min(60, (subject.facts.limit or 1000) - _LENGTH - 4)
    effects = []
    for by in (5, max(far, 6), *_find_far(subject)):
        try:
            gap = difference(subject.logits(ids, positions=subject.arange(2, _LENGTH, by)), before)
        except (IndexError, RuntimeError, ValueError):
            if by <= 60:
                raise
            break  # it has no such places, which length.beyond is about
        effects.append(Measurement(gap if gap > _ROUNDING * by else 0.0, f"by {by}{_hint(subject)}"))
    return largest(*effects)


def _hint(subject: Subject) -> str:
    """Return how an author says that absolute positions are meant, where nothing in the model tells it."""
    own = subject.module is not None and not hasattr(subject.adapter, "config") and not subject.facts.absolute
    return "; absolute=True declares that every place has a vector of its own" if own else ""


def _find_far(subject: Subject) -> tuple[int, ...]:
    """Where angles are computed for any position; elsewhere, and in programs, places beyond the claim may differ."""
    limit, program = subject.facts.limit, hasattr(subject.adapter, "engine")
    computed = not program and "RoPE" in subject.facts.scheme and not subject.facts.absolute
    free = not program and limit is None
    return tuple(by for by in _BORDERS if computed or free or (limit is not None and by + _LENGTH <= limit))


def _contiguous(subject: Subject, ids: Tensor, positions: Tensor) -> Tensor:
    """Logits at stretched positions through a cache, so that the gaps are not taken for documents."""
    cache = subject.adapter.new_cache() if subject.takes("cache") else None  # type: ignore[attr-defined]
    return subject.logits(ids, positions=positions, cache=cache)
