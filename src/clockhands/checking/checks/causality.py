"""A causal model must not see the future; any model must see the order of its tokens."""

from __future__ import annotations

import torch

from clockhands.checking.checks.check import Measurement, check, difference, worst
from clockhands.checking.models.subject import Subject

_LENGTH = 24


@check(
    "causal.future",
    "No token changes anything before it; every place is tried.",
    "a mask inverted, dropped or gathered in the wrong order",
    causal=True,
    uses=("one text after another", "cached decoding"),
)
def future(subject: Subject) -> Measurement:
    """Replace token i + 1 in row i: the logits up to token i must stay."""
    ids = subject.tokens(1, _LENGTH)
    changed = ids.repeat(_LENGTH - 1, 1)
    for row in range(_LENGTH - 1):
        changed[row, row + 1] = subject.other(ids)[0, row + 1]
    before = subject.logits(ids)
    after = torch.cat([subject.logits(rows) for rows in changed.split(8)])
    leaks = [difference(after[i : i + 1, : i + 1], before[:, : i + 1]) for i in range(_LENGTH - 1)]
    position = max(range(len(leaks)), key=leaks.__getitem__) + 1
    return Measurement(max(leaks), f"largest from token {position}")


@check(
    "causal.prefix",
    "Logits of a prefix do not depend on how long the text is.",
    "a scale, a mask or a bias made from the total length",
    causal=True,
    uses=("one text after another", "cached decoding"),
)
def prefix(subject: Subject) -> Measurement:
    """Compare several prefixes with the whole text."""
    ids = subject.tokens(1, 36)
    whole = subject.logits(ids)
    gaps = {n: worst(subject.logits(ids[:, :n]), whole[:, :n])[0] for n in (5, 12, 17, 30)}
    length = max(gaps, key=gaps.__getitem__)
    return Measurement(gaps[length], f"prefix of {length} of 36")


@check(
    "order.matters",
    "The order of the tokens reaches the logits.",
    "an encoding that is never applied",
    uses=("one text after another",),
)
def order(subject: Subject) -> Measurement:
    """Reverse the early tokens: the logits at the unchanged end must differ."""
    ids = subject.tokens(1, 14)
    turned = torch.cat([ids[:, :10].flip(1), ids[:, 10:]], 1)
    after, before = subject.logits(turned), subject.logits(ids)
    if not subject.aligned:
        return Measurement(difference(after, before), wanted=True)
    return Measurement(difference(after[:, 10:], before[:, 10:]), wanted=True)
