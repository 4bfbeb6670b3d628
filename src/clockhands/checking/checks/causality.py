"""A causal model sees no future; any model sees the order of its tokens, and positions as they are given."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from clockhands.checking.checks.check import (
    TOLERANCE,
    Inapplicable,
    Measurement,
    check,
    difference,
    largest,
    read_across_gaps,
)
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.reading import find_entries, read
from clockhands.checking.models.subject import Subject

_LENGTH, _TRIED = 24, 20
_BORDERS = (120, 250, 300, 2040, 4000, 32760, 40000)
"""Around 128 and 256, 2,048 and 32,768: the ends of numbers of 8 bits, of float16 and bfloat16, and of 16 bits."""
_ROUNDING = 2.5e-6  # of an angle, in float32, for each position further, and what weights make of it


@check(
    "causal.future",
    "a mask inverted, dropped or gathered in the wrong order",
    causal=True,
    uses=("one text after another", "cached decoding"),
)
def _future(subject: Subject) -> Measurement:
    """No token changes anything before it; every place is tried.

    Token i + 1 is replaced in row i: the logits up to token i must be those of the same row of an unchanged batch.
    """
    ids = subject.tokens(1, _LENGTH)
    unchanged = ids.repeat(_LENGTH - 1, 1)
    changed = unchanged.clone()
    for row in range(_LENGTH - 1):
        changed[row, row + 1] = subject.other(ids)[0, row + 1]
    before, after = [torch.cat([subject.logits(rows) for rows in text.split(8)]) for text in (unchanged, changed)]
    leaks = [
        Measurement(difference(after[i : i + 1, : i + 1], before[i : i + 1, : i + 1]), f"largest from token {i + 1}")
        for i in range(_LENGTH - 1)
    ]
    return largest(*leaks)


@check(
    "causal.prefix",
    "a scale, a mask or a bias made from the total length",
    causal=True,
    uses=("one text after another", "cached decoding"),
)
def _prefix(subject: Subject) -> Iterator[Measurement]:
    """Logits of a prefix do not depend on how long the text is."""
    ids = subject.tokens(1, 36)
    whole = subject.logits(ids)
    for length in (5, 12, 17, 30):
        yield Measurement(difference(subject.logits(ids[:, :length]), whole[:, :length]), f"prefix of {length} of 36")


@check("order.matters", "an encoding that is never applied", uses=("one text after another",))
def _order(subject: Subject) -> Measurement:
    """The order of the tokens reaches the logits.

    The early tokens are reversed: the logits at the unchanged end must differ.
    """
    ids = subject.tokens(1, 14)
    after, before = subject.logits(torch.cat([ids[:, :10].flip(1), ids[:, 10:]], 1)), subject.logits(ids)
    end = slice(10 if subject.aligned else 0, None)
    remark = ""
    if subject.aligned and not subject.causal:
        last = torch.cat([ids[:, :-1], subject.other(ids)[:, -1:]], 1)
        unseen = difference(subject.logits(last)[:, :-1], before[:, :-1]) <= TOLERANCE
        remark = "no token sees a later one: a causal mask in an encoder" if unseen else ""
    return Measurement(difference(after[:, end], before[:, end]), wanted=True, remark=remark)


@check(
    "order.places",
    "one place for all tokens of a side",
    needs=("module",),
    causal=True,
    uses=("one text after another",),
)
def _places(subject: Subject) -> Measurement:
    """A token is told its place by a vector, a rotation or a bias, and not by the causal mask alone.

    One token is read at sixteen places: its first state, its queries and keys, and the bias on its logits.
    """
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


@check(
    "positions.explicit",
    "an offset between the argument and the default",
    needs=("positions",),
    uses=("given position_ids",),
)
def _explicit(subject: Subject) -> Measurement:
    """position_ids of 0, 1, 2 ... give what no position_ids give.

    They begin at 0 whatever the model's own first number is.
    """
    ids = subject.tokens(2, _TRIED)
    positions = subject.arange(2, _TRIED) - subject.facts.first
    note = f"the model counts from {subject.facts.first}" if subject.facts.first else ""
    return Measurement(difference(subject.logits(ids, positions=positions), subject.logits(ids)), note)


@check(
    "positions.matter",
    "an argument accepted and dropped",
    needs=("positions",),
    uses=("given position_ids", "left padding with position_ids"),
)
def _matter(subject: Subject) -> Measurement:
    """position_ids reach the logits."""
    silent = "RoPE" not in subject.facts.scheme.split(" + ") and not subject.facts.absolute
    if silent and hasattr(subject.adapter, "config"):
        raise Inapplicable("no part of the model reads positions")
    ids = subject.tokens(1, 8)
    stretched = subject.arange(1, 8) * 3 - 2 * subject.facts.first
    return Measurement(difference(read_across_gaps(subject, ids, stretched), subject.logits(ids)), wanted=True)


@check("shift", "angles paired wrongly; an offset added once only", needs=("positions",), uses=("moved positions",))
def _shift(subject: Subject) -> Iterator[Measurement]:
    """All positions moved by the same amount change nothing.

    They are moved by 5 and by 60 (less where the table ends sooner), and to where positions of 8 and 16 bits end: that
    far only where angles are computed for any position. Elsewhere, and in programs, places beyond the claim may differ.
    """
    ids, limit = subject.tokens(2, _TRIED), subject.facts.limit
    before = subject.logits(ids, positions=subject.arange(2, _TRIED))
    program, absolute = hasattr(subject.adapter, "engine"), subject.facts.absolute
    free = not program and (limit is None or ("RoPE" in subject.facts.scheme and not absolute))
    far = [by for by in _BORDERS if free or (limit is not None and by + _TRIED <= limit)]
    # How an author says that absolute positions are meant, where nothing in the model tells it.
    own = subject.module is not None and not hasattr(subject.adapter, "config") and not absolute
    hint = "; absolute=True declares that every place has a vector of its own" if own else ""
    for by in (5, max(min(60, (limit or 1000) - _TRIED - 4), 6), *far):
        try:
            gap = difference(subject.logits(ids, positions=subject.arange(2, _TRIED, by)), before)
        except (IndexError, RuntimeError, ValueError):
            if by <= 60:
                raise
            break  # it has no such places, which length.beyond is about
        yield Measurement(gap if gap > _ROUNDING * by else 0.0, f"by {by}{hint}")
