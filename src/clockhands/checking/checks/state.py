"""One text must leave nothing behind for the next."""

from __future__ import annotations

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference
from clockhands.checking.models.subject import Subject

_SHORT, _MEDIUM, _LONG = 12, 44, 96


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


def _after_long(subject: Subject, length: int) -> Measurement:
    longest = _longest(subject)
    if longest < 2 * _SHORT:
        raise Inapplicable(f"the model reads only {longest} tokens")
    ids = subject.tokens(1, min(length, longest - 4))
    before = subject.logits(ids)
    subject.logits(subject.tokens(1, longest, salt=2))
    return Measurement(difference(subject.logits(ids), before), f"{ids.shape[1]} tokens after {longest}")


def _longest(subject: Subject) -> int:
    """Beyond the claimed length only where angles can be computed for any position."""
    limit = subject.facts.limit
    bounded = subject.facts.absolute or "RoPE" not in subject.facts.scheme
    return min(_LONG, limit - 4 - subject.facts.first) if limit and bounded else _LONG
