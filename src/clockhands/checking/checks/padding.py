"""Padding must change nothing for the real tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject

_LENGTH = 20
_PADS = 5
REPEATABLE = 0.01  # of a standard deviation: what low precision makes of sums in another order


@check(
    "padding.right",
    "Pads after the text, under a mask, change nothing.",
    "pads read as text",
    needs=("mask",),
    uses=("right padding",),
)
def right(subject: Subject) -> Measurement:
    """Compare a row alone with the same row padded on the right beside a longer one."""
    ids, pads = _row(subject)
    mask = _mask(ids, after=_PADS)
    actual = _real(subject, subject.logits(torch.cat([ids, pads], 1), mask), slice(0, _LENGTH))
    return Measurement(difference(actual, _alone(subject, ids)), f"{_PADS} pads after {_LENGTH} tokens")


@check(
    "padding.left.mask",
    "Pads before the text, under a mask and without position_ids, change nothing.",
    "positions counted from the first pad",
    needs=("mask",),
    uses=("left padding by the mask alone",),
)
def left_mask(subject: Subject) -> Measurement:
    """Pass the mask alone, which must tell where the text begins."""
    ids, pads = _row(subject)
    actual = subject.logits(torch.cat([pads, ids], 1), _mask(ids, before=_PADS))
    actual = _real(subject, actual, slice(_PADS, None))
    return Measurement(difference(actual, _alone(subject, ids)), f"{_PADS} pads before {_LENGTH} tokens")


@check(
    "padding.left.positions",
    "Pads before the text, under a mask and with position_ids from it, change nothing.",
    "positions not taken from the argument; pads attended to",
    needs=("mask", "positions"),
    uses=("left padding with position_ids",),
)
def left_positions(subject: Subject) -> Measurement:
    """Mask and positions together."""
    ids, pads = _row(subject)
    mask = _mask(ids, before=_PADS)
    actual = subject.logits(torch.cat([pads, ids], 1), mask, subject.positions(mask))[:, _PADS:]
    return Measurement(difference(actual, subject.logits(ids)), f"{_PADS} pads before {_LENGTH} tokens")


@check(
    "padding.content",
    "What stands under the mask does not matter.",
    "masked tokens looked at",
    needs=("mask",),
    uses=("right padding", "left padding by the mask alone", "left padding with position_ids", "left-padded generate"),
)
def content(subject: Subject) -> Measurement:
    """Other ids in the padded places, on either side."""
    return largest(*(_content(subject, *sides) for sides in ((0, _PADS), (_PADS, 0))))


def _content(subject: Subject, before: int, after: int) -> Measurement:
    ids, pads = _row(subject)
    mask = _mask(ids, before, after)
    texts = [torch.cat([fill[:, :before], ids, fill[:, :after]], 1) for fill in (pads, subject.other(pads))]
    kept = slice(before, before + _LENGTH)
    first, second = (_real(subject, subject.logits(text, mask), kept) for text in texts)
    return Measurement(difference(second, first), "pads on the left" if before else "pads on the right")


@check(
    "batch.alone",
    "A row answers alone what it answers in a batch.",
    "rows that reach each other",
    uses=("batches",),
)
def alone(subject: Subject) -> Measurement:
    """Three rows together against one of them alone."""
    ids = subject.tokens(3, _LENGTH)
    return Measurement(difference(subject.logits(ids)[1:2], subject.logits(ids[1:2])))


@check(
    "batch.order",
    "Rows in another order give the same rows in that order.",
    "a table indexed by row",
    uses=("batches",),
)
def order(subject: Subject) -> Measurement:
    """Four rows reversed."""
    ids = subject.tokens(4, _LENGTH)
    return Measurement(difference(subject.logits(ids.flip(0)).flip(0), subject.logits(ids)))


@check(
    "batch.unequal",
    "Rows of unequal length, padded on the right, answer what each answers alone.",
    "one length or one mask for all rows",
    uses=("batches", "right padding"),
    needs=("mask",),
)
def unequal(subject: Subject) -> Measurement:
    """Three rows of 20, 13 and 6 tokens in one batch."""
    ids, lengths = subject.tokens(3, _LENGTH), (_LENGTH, 13, 6)
    mask = torch.arange(_LENGTH, device=ids.device)[None] < torch.tensor(lengths, device=ids.device)[:, None]
    together = subject.logits(ids, mask)
    effects = []
    for row, length in enumerate(lengths):
        actual = _real(subject, together[row : row + 1], slice(0, length))
        effects.append(
            Measurement(difference(actual, _alone(subject, ids[row : row + 1, :length])), f"{length} tokens")
        )
    return largest(*effects)


@check(
    "deterministic",
    "The same call twice gives the same logits.",
    "randomness left on, or a state that stays behind",
    uses=("one text after another",),
)
def deterministic(subject: Subject) -> Measurement:
    """Read a text three times, another one between; held to a fixed precision, whatever a program's arithmetic does."""
    ids, tolerance = subject.tokens(1, _LENGTH), TOLERANCE if subject.module is not None else REPEATABLE
    wanted, sizes = subject.logits(ids), []
    for salt in (1, 2):
        subject.logits(subject.tokens(1, _LENGTH, salt))
        sizes.append(difference(subject.logits(ids), wanted))
    note = "not repeatable: what differs is noise, so that no other law can be judged finely"
    noise = getattr(subject.adapter, "noise", 0.0)
    coarse = f"what is beside or behind a text moves it by {noise:.2g} std: finer faults are not seen"
    said = note if max(sizes) > tolerance else coarse if noise > TOLERANCE else ""
    return Measurement(max(sizes), said, tolerance=tolerance)


def _row(subject: Subject) -> tuple[Tensor, Tensor]:
    return subject.tokens(1, _LENGTH), subject.tokens(1, _PADS, salt=7)


def _mask(ids: Tensor, before: int = 0, after: int = 0) -> Tensor:
    mask = torch.ones(ids.shape[0], before + ids.shape[1] + after, dtype=torch.bool, device=ids.device)
    mask[:, :before] = False
    mask[:, before + ids.shape[1] :] = False
    return mask


def _alone(subject: Subject, ids: Tensor) -> Tensor:
    return subject.logits(ids)


def _real(subject: Subject, logits: Tensor, kept: slice) -> Tensor:
    return logits[:, kept] if subject.aligned else logits
