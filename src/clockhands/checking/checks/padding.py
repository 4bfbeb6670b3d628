"""Padding changes nothing for the real tokens, and documents in one row are isolated."""

from __future__ import annotations

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject
from clockhands.errors import ClockhandsError

_LENGTH = 20
_PADS = 5
_REPEATABLE = 0.01  # of a standard deviation: what low precision makes of sums in another order


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
    ids, tolerance = subject.tokens(1, _LENGTH), TOLERANCE if subject.module is not None else _REPEATABLE
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


_SIZES = (7, 6)
_BORDERS = "documents that read each other; positions that do not restart"


@check(
    "packing.positions",
    "Documents packed by position_ids alone (no mask, no cache) do not see each other.",
    _BORDERS,
    needs=("positions",),
    uses=("packing",),
)
def positions_only(subject: Subject) -> Measurement:
    """Pack two documents by their positions, as training on packed data does."""
    return _packed(subject)


@check(
    "packing.mask",
    "Documents packed by position_ids beside an attention mask of ones do not see each other.",
    _BORDERS,
    needs=("positions", "mask"),
    uses=("packing beside a mask or a cache",),
)
def with_mask(subject: Subject) -> Measurement:
    """Pack them with a mask of ones, which must change nothing."""
    ids = subject.tokens(1, sum(_SIZES))
    return _packed(subject, mask=torch.ones_like(ids, dtype=torch.bool))


@check(
    "packing.cache",
    "Documents packed by position_ids with use_cache=True do not see each other.",
    _BORDERS,
    needs=("positions", "cache"),
    uses=("packing beside a mask or a cache",),
)
def with_cache(subject: Subject) -> Measurement:
    """Pack them with a cache, the default of a forward pass in evaluation."""
    return _packed(subject, cache=subject.adapter.new_cache())  # type: ignore[attr-defined]


@check(
    "packing.block_mask",
    "Documents packed under an explicit four-dimensional mask do not see each other.",
    "a mask of four dimensions not respected",
    needs=("positions", "mask"),
    uses=("packing under a block mask",),
)
def block_mask(subject: Subject) -> Measurement:
    """Pack them under an explicit mask, so that nothing is guessed from positions."""
    ids = subject.tokens(1, sum(_SIZES))
    documents = _documents(ids)[0]
    allowed = documents[:, None] == documents[None]
    if subject.causal:
        allowed = allowed.tril()
    try:
        subject.logits(ids, allowed[None, None].to(ids.device))
    except (ValueError, RuntimeError, IndexError, TypeError, AssertionError, ClockhandsError) as fault:
        raise Inapplicable("the model takes no four-dimensional mask") from fault
    return _packed(subject, mask=allowed[None, None].to(ids.device))


@check(
    "packing.gaps",
    "Positions with gaps (0, 2, 4 ...) are not taken for borders of documents.",
    "packing guessed from positions: PoSE and randomised positions lose their context",
    needs=("positions",),
    uses=("positions with gaps",),
)
def gaps(subject: Subject) -> Measurement:
    """Without mask and cache, the first token must still reach the last as it does without gaps."""
    ids = subject.tokens(1, 10)
    changed = torch.cat([subject.other(ids)[:, :1], ids[:, 1:]], 1)
    spread = subject.arange(1, 10) * 2 - subject.facts.first
    close = _influence(subject, ids, changed, subject.arange(1, 10))
    far = _influence(subject, ids, changed, spread)
    cut = close > TOLERANCE and far < TOLERANCE * close  # experts that run one row more or less round differently
    return Measurement(
        close if cut else 0.0, f"the first token moves the rest by {far:.2g} std, without gaps {close:.2g}"
    )


def _influence(subject: Subject, ids: Tensor, changed: Tensor, positions: Tensor) -> float:
    before, after = (subject.logits(text, positions=positions)[:, 1:] for text in (ids, changed))
    return difference(after, before)


def _documents(ids: Tensor) -> Tensor:
    """The number of every token's document."""
    return torch.repeat_interleave(torch.arange(2), torch.tensor(_SIZES)).to(ids.device)[None]


def _packed(subject: Subject, mask: Tensor | None = None, cache: object = None) -> Measurement:
    """Each document inside the row against itself alone. Raises Inapplicable where nobody claims to tell them apart."""
    guessed = mask is None or mask.dim() == 2
    if guessed and not hasattr(subject.adapter, "config") and not getattr(subject.adapter, "packs", False):
        raise Inapplicable("the model does not claim to take documents by their positions (packs=True)")
    ids = subject.tokens(1, sum(_SIZES))
    documents = ids.split(list(_SIZES), 1)
    positions = torch.cat([subject.arange(1, size) for size in _SIZES], 1)
    row = subject.packed(ids, mask, positions, cache, _documents(ids)).split(list(_SIZES), 1)
    effects = []
    for index, (actual, document) in enumerate(zip(row, documents, strict=True)):
        alone = subject.logits(document, positions=subject.arange(1, document.shape[1]))
        effects.append(Measurement(difference(actual, alone), f"document {index + 1} of 2"))
    return largest(*effects)
