"""Several documents in one row: isolated, each from position 0; and gaps that are no borders."""

from __future__ import annotations

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, Inapplicable, Measurement, check, difference, largest
from clockhands.checking.models.subject import Subject
from clockhands.errors import ClockhandsError

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
    return _packed(subject, mask=torch.ones(ids.shape, dtype=torch.bool, device=ids.device))


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
