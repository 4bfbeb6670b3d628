"""Explain why a text read in pieces, or behind pads, is answered otherwise than whole."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.pieces import PLANS, STEPS, TEXT, Pieces, Plan
from clockhands.checking.fitting.reading import Layer
from clockhands.checking.models.subject import Subject


def explain_check(subject: Subject, check: str) -> str:
    """Return why a check of caching or padding fails; empty of other checks, and where nothing explains it."""
    if check not in PLANS or subject.module is None or not (subject.causal and subject.aligned):
        return ""
    audible = subject.copy_audible(subject.seed, subject.dtype) if subject.redraw else subject.copy_untouched()
    return explain_pieces(audible, PLANS[check])


def explain_pieces(subject: Subject, plan: Plan) -> str:
    """Return why a text is answered otherwise when it is read as planned; empty where nothing fitted explains it.

    What is said is undone on another text, and said only if the difference is gone then.
    """
    try:
        pieces, ids = Pieces(subject, plan), subject.tokens(2, TEXT)
        said = dict(_describe(pieces))
        wanted = subject.logits(ids)
        before = difference(pieces.undo(ids, frozenset()), wanted)
        limit = max(TOLERANCE, before / 100)
        if not said or before <= TOLERANCE or difference(pieces.undo(ids, frozenset(said)), wanted) > limit:
            return ""
        for kind in list(said):
            fewer = frozenset(said) - {kind}
            if fewer and difference(pieces.undo(ids, fewer), wanted) <= limit:
                del said[kind]
        return "; ".join(said.values())
    except Exception:  # a model may raise anything on a text of one token
        return ""


def _describe(pieces: Pieces) -> Iterator[tuple[str, str]]:
    """Yield what differs from the whole text, by kind."""
    later = range(1, len(pieces.parts)) if pieces.plan.cached else range(1)
    what = "the text" if pieces.plan.pads else "each decode step" if pieces.plan is STEPS else "each later chunk"
    if pieces.plan.pads:
        what = f"behind {pieces.plan.pads} pads {what}"
    moved = [_find_moved(pieces, part) for part in later]
    if any(moved):
        yield "place", f"{what} {_name_gaps([gap for gaps in moved for gap in gaps or [0]], pieces, later)}"
    shown, hidden = _compare_masks(pieces, later)
    if shown or hidden:
        said = [f"sees {shown} key{'s' * (shown != 1)} that it should not"] if shown else []
        said += [f"does not see {hidden} key{'s' * (hidden != 1)} that it should"] if hidden else []
        if pieces.plan.pads and shown == pieces.plan.pads and not hidden:
            said = ["reads the pads"]
        yield "mask", f"{what} {' and '.join(said)}"
    bias = _compare_biases(pieces, later)
    if bias:
        yield "bias", f"{what} {bias}"


def _find_moved(pieces: Pieces, part: int) -> list[int] | None:
    entry = pieces.moved_entry(part)
    if entry is not None:
        return entry
    layers = range(len(pieces.whole.layers))
    return next((gaps for index in layers if (gaps := pieces.moved_queries(part, index)) is not None), None)


def _name_gaps(gaps: list[int], pieces: Pieces, later: range) -> str:
    if len(set(gaps)) == 1:
        return f"stands {abs(gaps[0])} too {'late' if gaps[0] > 0 else 'early'}"
    rows = [row for part in later for row in pieces.rows(part) if row >= 0]
    starts = [pieces.plan.stops[part - 1] if part else 0 for part in later for row in pieces.rows(part) if row >= 0]
    if gaps == [-start for start in starts]:
        return "begins at position 0"
    stood = [row + gap for row, gap in zip(rows, gaps, strict=True)]
    return f"stands at {', '.join(map(str, stood[:5]))} ..., not at {', '.join(map(str, rows[:5]))} ..."


def _compare_masks(pieces: Pieces, later: range) -> tuple[int, int]:
    """The most keys that a token sees and should not, and does not see and should."""
    shown = hidden = 0
    for part in later:
        for mine, whole in zip(pieces.parts[part].layers, pieces.whole.layers, strict=True):
            if not mine.exact or mine.allowed_ST.shape[1] != len(pieces.keys(part)):
                continue
            wanted = _take(whole.allowed_ST, pieces, part)
            real = torch.tensor([row >= 0 for row in pieces.rows(part)], device=wanted.device)
            shown = max(shown, int((mine.allowed_ST & ~wanted)[real].sum(1).max()))
            hidden = max(hidden, int((~mine.allowed_ST & wanted)[real].sum(1).max()))
    return shown, hidden


def _take(whole: Tensor, pieces: Pieces, part: int) -> Tensor:
    """Of a table [.., places, places] of the whole text that of a piece, 0 for pads."""
    rows, keys = (torch.tensor(x, device=whole.device) for x in (pieces.rows(part), pieces.keys(part)))
    taken = whole[..., rows.clamp(min=0)[:, None], keys.clamp(min=0)[None]]
    return taken & ((rows >= 0)[:, None] & (keys >= 0)[None]) if taken.dtype == torch.bool else taken


def _compare_biases(pieces: Pieces, later: range) -> str:
    for part in later:
        for mine, whole in zip(pieces.parts[part].layers, pieces.whole.layers, strict=True):
            said = _compare_bias(mine, whole, pieces, part)
            if said:
                return said
    return ""


def _compare_bias(mine: Layer, whole: Layer, pieces: Pieces, part: int) -> str:
    if not (mine.exact and whole.exact) or mine.allowed_ST.shape[1] != len(pieces.keys(part)):
        return ""
    bias, allowed = _take(whole.bias_HST, pieces, part), _take(whole.allowed_ST, pieces, part) & mine.allowed_ST
    if not biases.differ(mine.bias_HST, bias, allowed):
        return ""
    said = biases.describe_bias(mine.bias_HST, bias, allowed)
    return said[0].replace("the reference's", "those of the whole text") if said else ""
