"""A causal model must not see the future; any model must see the order of its tokens."""

from __future__ import annotations

import torch

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, worst
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.reading import find_entries, read
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
    """Replace token i + 1 in row i: the logits up to token i must be those of the same row of an unchanged batch."""
    ids = subject.tokens(1, _LENGTH)
    unchanged = ids.repeat(_LENGTH - 1, 1)
    changed = unchanged.clone()
    for row in range(_LENGTH - 1):
        changed[row, row + 1] = subject.other(ids)[0, row + 1]
    before, after = (torch.cat([subject.logits(rows) for rows in text.split(8)]) for text in (unchanged, changed))
    leaks = [difference(after[i : i + 1, : i + 1], before[i : i + 1, : i + 1]) for i in range(_LENGTH - 1)]
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


@check(
    "order.places",
    "A token is told its place by a vector, a rotation or a bias, and not by the causal mask alone.",
    "one place for all tokens of a side",
    needs=("module",),
    causal=True,
    uses=("one text after another",),
)
def places(subject: Subject) -> Measurement:
    """Read what one token is at sixteen places: its first state, its queries and keys, and the bias on its logits."""
    if hasattr(subject.adapter, "config") or subject.facts.recurrent or subject.facts.scheme != "none found":
        raise Inapplicable("about models of an author's own in which no encoding is found")
    ids = subject.tokens(1, 4)[0][:, None].repeat(1, 16)
    reading = read(subject, find_entries(subject)[:1], ids, Subject.logits)
    own = [layer for layer in reading.measure().values() if layer.is_of_text]
    if not own:
        raise Inapplicable("no attention was found")
    if not all(layer.exact for layer in own):
        return Measurement(1.0, "logits of attention are more than products", wanted=True)
    states = [*reading.states]
    states += [vectors for layer in own for vectors in (layer.q_BHSK, layer.k_BHTK)]
    moved = [difference(state, state[..., :1, :].expand_as(state)) for state in states]
    unbiased = torch.zeros_like(own[0].bias_HST)
    moved += [float(biases.differ(layer.bias_HST, unbiased, layer.allowed_ST)) for layer in own]
    return Measurement(max(moved), wanted=True)
