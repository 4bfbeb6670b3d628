"""Decoding with a cache under a mask: rows of unequal length, in one pass, in chunks, with drafts taken back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.checks.check import Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject

_LENGTH = 24
_PADS = 4


@check(
    "cache.mask",
    "Under a mask of ones, one token at a time equals all at once.",
    "positions counted from the part of the mask that belongs to the new tokens",
    uses=("cached decoding", "left-padded generate"),
    needs=("cache", "mask"),
    causal=True,
)
def ones(subject: Subject) -> Measurement:
    """Read a prompt and single tokens with the mask that a tokenizer gives."""
    ids = subject.tokens(2, _LENGTH)
    return _in_steps(subject, ids, torch.ones(ids.shape, dtype=torch.bool, device=ids.device))


@check(
    "cache.left_mask",
    "Padded on the left, under the mask alone, one token at a time equals all at once.",
    "pads that count at a decoding step and not in a whole text, or the other way round",
    uses=("left-padded generate", "left padding by the mask alone"),
    needs=("cache", "mask"),
    causal=True,
)
def left_mask(subject: Subject) -> Measurement:
    """Compare with the same padded rows in one pass, so that it does not matter whether pads count as positions."""
    ids = subject.tokens(2, _LENGTH)
    mask = torch.ones(ids.shape, dtype=torch.bool, device=ids.device)
    mask[0, :_PADS] = False
    return _in_steps(subject, ids, mask)


def _in_steps(subject: Subject, ids: Tensor, mask: Tensor) -> Measurement:
    cache, actual = _new(subject), []
    for start, stop in pairwise([0, 10, *range(11, _LENGTH + 1)]):
        actual.append(subject.logits(ids[:, start:stop], mask[:, :stop], cache=cache))
    kept = mask.unsqueeze(-1)
    whole = subject.logits(ids, mask)
    return Measurement(difference(torch.cat(actual, 1) * kept, whole * kept), f"{_LENGTH - 10} single steps")


@check(
    "cache.prefill",
    "A batch of unequal rows read in chunks equals each row alone.",
    "a mask or positions cut wrongly at the border of a chunk",
    uses=("resume", "left-padded generate"),
    needs=("cache", "mask", "positions"),
    causal=True,
)
def prefill(subject: Subject) -> Measurement:
    """Read two rows, one with pads on the left, in chunks of seven; the first chunk of a row may be pads alone."""
    ids, pads = subject.tokens(2, _LENGTH), 8
    mask = torch.ones(ids.shape, dtype=torch.bool, device=ids.device)
    mask[0, :pads] = False
    positions, cache, actual = subject.positions(mask), _new(subject), []
    for start, stop in pairwise([0, 7, 14, 21, _LENGTH]):
        chunk = slice(start, stop)
        actual.append(subject.logits(ids[:, chunk], mask[:, :stop], positions[:, chunk], cache))
    together = torch.cat(actual, 1)
    rows = ((together[:1, pads:], ids[:1, pads:]), (together[1:], ids[1:]))
    return largest(*(Measurement(difference(row, subject.logits(alone)), "chunks of 7") for row, alone in rows))


@check(
    "cache.rollback_rows",
    "Drafts that one row rejects and another keeps leave no trace.",
    "one count of tokens for all rows; rejected drafts that are still attended to",
    uses=("rollback",),
    needs=("cache", "mask", "positions"),
    causal=True,
)
def rollback_rows(subject: Subject) -> Measurement:
    """Read five drafts in two rows; mask the last three of one row, and go on in both, each at its own position.

    All of it is shorter than the windows of 16 that the shrunk models have, which count slots and not positions.
    """
    if getattr(subject.adapter, "packs", False):
        raise Inapplicable("where a position falls the model begins a document")
    prompt, drafts, rest = subject.tokens(2, 5), subject.tokens(2, 5, salt=3), subject.tokens(2, 5, salt=4)
    cache, read = _new(subject), torch.cat([prompt, drafts], 1)
    mask = torch.ones(2, 15, dtype=torch.bool, device=prompt.device)
    subject.logits(read, mask[:, :10], subject.arange(2, 10), cache)
    mask[0, 7:10] = False
    positions = torch.cat([subject.arange(1, 5, 7), subject.arange(1, 5, 10)])
    after = subject.logits(rest, mask, positions, cache)
    kept = [torch.cat([read[row : row + 1, :count], rest[row : row + 1]], 1) for row, count in ((0, 7), (1, 10))]
    pairs = ((after[row : row + 1], subject.logits(text)[:, -5:]) for row, text in enumerate(kept))
    return largest(*(Measurement(difference(row, alone), "2 and 5 drafts of 5 kept") for row, alone in pairs))


def _new(subject: Subject) -> Any:
    return subject.adapter.new_cache()  # type: ignore[attr-defined]
