"""Padding changes nothing for the real tokens, and documents in one row are isolated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from clockhands.checking.checks.check import (
    TOLERANCE,
    Inapplicable,
    Measurement,
    check,
    difference,
    new_cache,
    refusals,
)
from clockhands.checking.models.subject import Subject
from clockhands.errors import ClockhandsError

_LENGTH = 20
_PADS = 5
_REPEATABLE = 0.01  # of a standard deviation: what low precision makes of sums in another order
_SIZES = (7, 6), (4, 9)  # tokens of the documents in each row
_REFUSED = (ValueError, RuntimeError, IndexError, TypeError, AssertionError, ClockhandsError)
"""What is raised for an input that a model does not take."""
_BORDERS = "documents that read each other; positions that do not restart"


@check("padding.right", "pads read as text", needs=("mask",), uses=("right padding",))
def _right(subject: Subject) -> Measurement:
    """Pads after the text, under a mask, change nothing."""
    return _compare_padded(subject, after=_PADS)


@check(
    "padding.left.mask",
    "positions counted from the first pad",
    needs=("mask",),
    uses=("left padding by the mask alone",),
)
def _left_mask(subject: Subject) -> Measurement:
    """Pads before the text, under a mask and without position_ids, change nothing."""
    return _compare_padded(subject, before=_PADS)


@check(
    "padding.left.positions",
    "positions not taken from the argument; pads attended to",
    needs=("mask", "positions"),
    uses=("left padding with position_ids",),
)
def _left_positions(subject: Subject) -> Measurement:
    """Pads before the text, under a mask and with position_ids from it, change nothing."""
    return _compare_padded(subject, before=_PADS, placed=True)


@check(
    "padding.content",
    "masked tokens looked at",
    needs=("mask",),
    uses=("right padding", "left padding by the mask alone", "left padding with position_ids", "left-padded generate"),
)
def _content(subject: Subject) -> Iterator[Measurement]:
    """What stands under the mask does not matter."""
    pads = subject.tokens(1, _PADS, salt=7)
    for before, after, note in ((0, _PADS, "pads on the right"), (_PADS, 0, "pads on the left")):
        read = [_read_padded(subject, fill, before, after) for fill in (pads, subject.other(pads))]
        yield Measurement(difference(read[1], read[0]), note)


@check("batch.alone", "rows that reach each other", uses=("batches",))
def _alone(subject: Subject) -> Measurement:
    """A row answers alone what it answers in a batch."""
    ids = subject.tokens(3, _LENGTH)
    return Measurement(difference(subject.logits(ids)[1:2], subject.logits(ids[1:2])))


@check("batch.order", "a table indexed by row", uses=("batches",))
def _order(subject: Subject) -> Measurement:
    """Rows in another order give the same rows in that order."""
    ids = subject.tokens(4, _LENGTH)
    return Measurement(difference(subject.logits(ids.flip(0)).flip(0), subject.logits(ids)))


@check(
    "padding.beside",
    "one row's positions for all rows",
    needs=("mask",),
    uses=("left padding by the mask alone", "left-padded generate"),
)
def _beside(subject: Subject) -> Measurement:
    """A row without pads answers beside rows that are padded on the left what it answers alone."""
    ids = subject.tokens(3, _LENGTH)
    pads = torch.tensor([[_LENGTH - 6], [_PADS], [0]], device=ids.device)
    with refusals("the model takes no pads on the left", *_REFUSED):  # of which ``padding.left`` tells
        together = subject.logits(ids, torch.arange(_LENGTH, device=ids.device) >= pads)
    return Measurement(difference(together[2:], subject.logits(ids[2:])), "beside 14 pads and 5")


@check("batch.unequal", "one length or one mask for all rows", uses=("batches", "right padding"), needs=("mask",))
def _unequal(subject: Subject) -> Iterator[Measurement]:
    """Rows of unequal length, padded on the right, answer what each answers alone."""
    ids, lengths = subject.tokens(3, _LENGTH), (_LENGTH, 13, 6)
    mask = torch.arange(_LENGTH, device=ids.device)[None] < torch.tensor(lengths, device=ids.device)[:, None]
    together = subject.logits(ids, mask)
    for row, length in enumerate(lengths):
        actual = _cut(subject, together[row : row + 1], slice(0, length))
        yield Measurement(difference(actual, subject.logits(ids[row : row + 1, :length])), f"{length} tokens")


@check("deterministic", "randomness left on, or a state that stays behind", uses=("one text after another",))
def _deterministic(subject: Subject) -> Measurement:
    """The same call twice gives the same logits.

    Other texts are read between; held to a fixed precision, whatever a program's arithmetic does.
    """
    ids, tolerance = subject.tokens(1, _LENGTH), TOLERANCE if subject.module is not None else _REPEATABLE
    wanted, sizes = subject.logits(ids), []
    for salt in (1, 2):
        subject.logits(subject.tokens(1, _LENGTH, salt))
        sizes.append(difference(subject.logits(ids), wanted))
    noise, note = getattr(subject.adapter, "noise", 0.0), ""
    if max(sizes) > tolerance:
        note = "not repeatable: what differs is noise, so that no other law can be judged finely"
    elif noise > TOLERANCE:
        note = f"what is beside or behind a text moves it by {noise:.2g} std: finer faults are not seen"
    return Measurement(max(sizes), note, tolerance=tolerance)


def _compare_padded(subject: Subject, before: int = 0, after: int = 0, placed: bool = False) -> Measurement:
    """Compare a text beside pads, which are tokens too, with the text alone."""
    actual = _read_padded(subject, subject.tokens(1, _PADS, salt=7), before, after, placed)
    note = f"{_PADS} pads {'before' if before else 'after'} {_LENGTH} tokens"
    return Measurement(difference(actual, subject.logits(subject.tokens(1, _LENGTH))), note)


def _read_padded(subject: Subject, pads: Tensor, before: int, after: int, placed: bool = False) -> Tensor:
    """Return the logits of a text beside pads under a mask, and at its positions by the mask where it is ``placed``."""
    ids = subject.tokens(1, _LENGTH)
    mask = torch.nn.functional.pad(torch.ones_like(ids, dtype=torch.bool), (before, after))
    text = torch.cat([pads[:, :before], ids, pads[:, :after]], 1)
    logits = subject.logits(text, mask, subject.positions(mask) if placed else None)
    return _cut(subject, logits, slice(before, before + _LENGTH))


def _cut(subject: Subject, logits: Tensor, kept: slice) -> Tensor:
    """Return the logits of the real tokens, if there are some for each token."""
    return logits[:, kept] if subject.aligned else logits


@check("packing.positions", _BORDERS, needs=("positions",), uses=("packing",))
def _positions_only(subject: Subject) -> Iterator[Measurement]:
    """Documents packed by position_ids alone (no mask, no cache) do not see each other."""
    return _compare_packed(subject)


@check("packing.mask", _BORDERS, needs=("positions", "mask"), uses=("packing beside a mask or a cache",))
def _with_mask(subject: Subject) -> Iterator[Measurement]:
    """Documents packed by position_ids beside an attention mask of ones do not see each other."""
    return _compare_packed(subject, mask=torch.ones_like(_number_documents(subject), dtype=torch.bool))


@check("packing.cache", _BORDERS, needs=("positions", "cache"), uses=("packing beside a mask or a cache",))
def _with_cache(subject: Subject) -> Iterator[Measurement]:
    """Documents packed by position_ids with use_cache=True do not see each other, also where the last goes on."""
    return _compare_packed(subject, cached=True)


@check(
    "packing.block_mask",
    "a mask of four dimensions not respected",
    needs=("positions", "mask"),
    uses=("packing under a block mask",),
)
def _block_mask(subject: Subject) -> Iterator[Measurement]:
    """Documents packed under an explicit four-dimensional mask do not see each other."""
    documents = _number_documents(subject)
    allowed = (documents[:, :, None] == documents[:, None])[:, None]
    if subject.causal:
        allowed = allowed.tril()
    with refusals("the model takes no four-dimensional mask", *_REFUSED):
        subject.logits(subject.tokens(*documents.shape)[:1], allowed[:1])
    return _compare_packed(subject, mask=allowed)


def _number_documents(subject: Subject) -> Tensor:
    """Return the number [B, S] of every token's document: two to a row, which end at another place in each."""
    rows = [torch.repeat_interleave(torch.arange(2), torch.tensor(sizes)) for sizes in _SIZES]
    return torch.stack(rows).to(subject.tokens(1, 1).device)


def _compare_packed(subject: Subject, mask: Tensor | None = None, cached: bool = False) -> Iterator[Measurement]:
    """Compare each document in a row with itself alone; a model that refuses two packed rows is given one at a time.

    Raises Inapplicable where nobody claims to tell documents apart.
    """
    guessed = mask is None or mask.dim() == 2
    if guessed and not hasattr(subject.adapter, "config") and not getattr(subject.adapter, "packs", False):
        raise Inapplicable("the model does not claim to take documents by their positions (packs=True)")
    documents = _number_documents(subject)
    ids = subject.tokens(*documents.shape)
    positions = torch.cat([torch.cat([subject.arange(1, size) for size in sizes], 1) for sizes in _SIZES])

    def read(rows: slice) -> Tensor:
        own = None if mask is None else mask[rows]
        if not cached:
            return subject.packed(ids[rows], own, positions[rows], None, documents[rows])
        cache = new_cache(subject)
        pieces = zip(*(part[rows].split(ids.shape[1] - 3, 1) for part in (ids, positions, documents)), strict=True)
        with suppress(ValueError, NotImplementedError, ClockhandsError):  # it may refuse to go on behind packed texts
            return torch.cat([subject.packed(text, None, places, cache, of) for text, places, of in pieces], 1)
        return subject.packed(ids[rows], None, positions[rows], new_cache(subject), documents[rows])

    remark = ""
    try:
        together = read(slice(None))
    except _REFUSED:  # as those do that lay documents out in one row, whatever the batch
        together = torch.cat([read(slice(row, row + 1)) for row in range(len(ids))])
        remark = "one packed row at a time: two together are refused"
    for row, sizes in enumerate(_SIZES):
        pairs = zip(together[row].split(list(sizes)), ids[row].split(list(sizes)), strict=True)
        for number, (actual, document) in enumerate(pairs, 1):
            own = subject.logits(document[None], positions=subject.arange(1, len(document)))
            note = f"document {number} of 2 in row {row + 1}"
            yield Measurement(difference(actual[None], own), note, remark=remark)


@check(
    "packing.gaps",
    "packing guessed from positions: PoSE and randomised positions lose their context",
    needs=("positions",),
    uses=("positions with gaps",),
)
def _gaps(subject: Subject) -> Measurement:
    """Positions with gaps (0, 2, 4 ...) are not taken for borders of documents.

    Without mask and cache, the first token must still reach the last as it does without gaps.
    """
    ids = subject.tokens(1, 10)
    changed, line = torch.cat([subject.other(ids)[:, :1], ids[:, 1:]], 1), subject.arange(1, 10)
    influences = []
    for positions in (line, line * 2 - subject.facts.first):
        before, after = [subject.logits(text, positions=positions)[:, 1:] for text in (ids, changed)]
        influences.append(difference(after, before))
    close, far = influences
    cut = close > TOLERANCE and far < TOLERANCE * close  # experts that run one row more or less round differently
    note = f"the first token moves the rest by {far:.2g} std, without gaps {close:.2g}"
    return Measurement(close if cut else 0.0, note)
