"""Explain a difference between two models: fit what each attention does, say what differs, and undo it to be sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting.clues import Clue, group
from clockhands.checking.fitting.differences import find_differences
from clockhands.checking.fitting.pair import Pair
from clockhands.checking.models.subject import Subject

_LENGTH = 72


@dataclass(frozen=True)
class Explanation:
    """Clues under which both models agree, or none; ``tried`` says how far they are with each of those found undone."""

    clues: tuple[Clue, ...] = ()
    tried: tuple[tuple[str, float], ...] = ()


def explain(ours: Subject, theirs: Subject, ids: Tensor, wanted: Tensor, size: float) -> Explanation:
    """Explain why our logits of a text are not the ``wanted`` ones, from which they are ``size`` away.

    A clue is one only if both agree when the differences are undone as it says, and do not without it.
    """
    try:
        limits = [subject.facts.limit - subject.facts.first for subject in (ours, theirs) if subject.facts.limit]
        pair = Pair(ours, theirs, max(min(_LENGTH, *limits, _LENGTH), ids.shape[1]))
        if not pair.comparable:
            return Explanation()
        clues = group(pair, list(find_differences(pair.mine, pair.wanted, theirs.get_module())))
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError, NotImplementedError, AssertionError):
        return Explanation()  # a model may raise anything on a text of one token
    limit = max(TOLERANCE, size / 100)

    def left(kept: Sequence[Clue]) -> float:
        undone = [item for clue in kept for item in clue.differences]
        return difference(pair.undo(ids, undone), wanted)

    tried = tuple((clue.text, left([clue])) for clue in clues)
    if not clues or left(clues) > limit:
        return Explanation((), tried)
    for clue in list(clues):
        fewer = [item for item in clues if item is not clue]
        if fewer and left(fewer) <= limit:
            clues = fewer
    return Explanation(tuple(clues), tried)
