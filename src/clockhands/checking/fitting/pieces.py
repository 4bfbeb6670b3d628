"""Read a text whole, and in pieces or behind pads, and find where its tokens then stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.fitting.reading import Reading, apply, read, read_entry
from clockhands.checking.fitting.rotation import fit_rotation
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_ROWS, TEXT = 8, 20


@dataclass(frozen=True)
class Plan:
    """How a text of 20 tokens is read: behind ``pads``, in pieces that end at ``stops``, later ones through a cache.

    ``positions``: whether they are given by hand.
    """

    pads: int
    stops: tuple[int, ...]
    positions: bool = False

    @property
    def cached(self) -> bool:
        """Whether there is more than one piece."""
        return len(self.stops) > 1


STEPS = Plan(0, (8, *range(9, TEXT + 1)))
CHUNKS = Plan(0, (7, 13, TEXT))
PADDED = Plan(5, (TEXT + 5,))
PLANS = {
    "cache.steps": STEPS,
    "cache.mask": STEPS,
    "cache.chunks": CHUNKS,
    "padding.left.mask": PADDED,
    "padding.left.positions": Plan(5, (TEXT + 5,), positions=True),
}
"""Of the checks that read one text in two ways, how they read it."""


class Pieces:
    """A model read whole and in pieces, on rows of one token each, and on a text with what differs undone."""

    def __init__(self, subject: Subject, plan: Plan) -> None:
        self.subject, self.plan = subject, plan
        limit = subject.facts.limit or 2 * TEXT + 8
        tokens = subject.tokens(1, _ROWS)[0][:, None]
        whole = tokens.repeat(1, min(2 * TEXT + 8, limit))
        self.whole = read(subject, lambda: subject.logits(whole), _ROWS)
        self.parts: list[Reading] = []
        for run in self.calls(tokens.repeat(1, TEXT)):
            self.parts.append(read(subject, run, _ROWS))

    def calls(self, ids: Tensor) -> Iterator[Callable[[], Tensor]]:
        """Yield the passes over the pieces of a text, which share a cache."""
        subject, plan = self.subject, self.plan
        text = torch.cat([subject.tokens(1, plan.pads, salt=7).repeat(len(ids), 1), ids], 1) if plan.pads else ids
        mask = torch.ones(text.shape, dtype=torch.bool, device=text.device)
        mask[:, : plan.pads] = False
        adapter: Any = subject.adapter
        cache = adapter.new_cache() if plan.cached else None
        for start, stop in pairwise([0, *plan.stops]):
            shown_mask = mask[:, :stop] if plan.pads else None
            positions = subject.positions(mask)[:, start:stop] if plan.positions else None
            yield partial(subject.logits, text[:, start:stop], shown_mask, positions, cache)

    def rows(self, part: int) -> list[int]:
        """The places of the tokens of a piece; those of pads are negative."""
        start = self.plan.stops[part - 1] if part else 0
        return [column - self.plan.pads for column in range(start, self.plan.stops[part])]

    def keys(self, part: int) -> list[int]:
        """The places of the keys that a piece has to see."""
        return [column - self.plan.pads for column in range(self.plan.stops[part])]

    def undo(self, ids: Tensor, kinds: frozenset[str]) -> Tensor:
        """Return the logits of the text in pieces, with the differences of these kinds undone."""
        whole = read_entry(self.subject, ids) if "place" in kinds and self.whole.entry_BSD is not None else None
        answers = []
        for part, run in enumerate(self.calls(ids)):
            entry, kept = None, self.parts[part].entry_BSD
            if whole is not None and kept is not None and self.moved_entry(part):
                own = [place for place in self.rows(part) if place >= 0]
                entry = torch.cat([kept[: len(ids), : len(self.rows(part)) - len(own)], whole[:, own]], 1)

            def change(index: int, attention: Attention, part: int = part) -> Tensor | None:
                return self._rebuild(part, index, attention, kinds)

            answers.append(apply(self.subject, run, len(ids), change, entry))
        return torch.cat(answers, 1)[:, self.plan.pads :]

    def moved_entry(self, part: int) -> list[int] | None:
        """By how much the first states of a piece are those of later places; None where they are as they should be."""
        mine, whole = self.parts[part].entry_BSD, self.whole.entry_BSD
        if mine is None or whole is None:
            return None
        return _moved(find_places(mine, whole, self.rows(part)), self.rows(part))

    def moved_queries(self, part: int, index: int) -> list[int] | None:
        """By how much the queries of a piece are those of later places; None where they are as they should be."""
        mine, whole = self.parts[part].layers[index].q_BHSK, self.whole.layers[index].q_BHSK
        return _moved(find_places(mine.flatten(0, 1), whole.flatten(0, 1), self.rows(part)), self.rows(part))

    def _rebuild(self, part: int, index: int, attention: Attention, kinds: frozenset[str]) -> Tensor | None:
        mine, whole = self.parts[part].layers[index], self.whole.layers[index]
        rows, keys = self.rows(part), self.keys(part)
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        if k.shape[2] != len(keys) or not (mine.exact and whole.exact) or len(set(keys)) != len(keys):
            return None
        if "place" in kinds:
            q, k = (
                self._rotate_back(q, mine.q_BHSK, whole.q_BHSK, rows),
                self._rotate_back(k, mine.k_BHTK, whole.k_BHTK, keys),
            )
        bias, allowed = mine.bias_HST.clone(), mine.allowed_ST.clone()
        real, seen = [i for i, row in enumerate(rows) if row >= 0], [j for j, key in enumerate(keys) if key >= 0]
        at = torch.tensor([rows[i] for i in real])[:, None], torch.tensor([keys[j] for j in seen])[None]
        there = torch.tensor(real)[:, None], torch.tensor(seen)[None]
        if "bias" in kinds:
            bias[:, there[0], there[1]] = whole.bias_HST[:, at[0], at[1]]
        if "mask" in kinds:
            allowed[real] = False
            allowed[there] = whole.allowed_ST[at]
        logits = mine.scale * (q @ k.mT) + bias
        dtype = attention.logits_BHST.dtype
        return logits.to(dtype).masked_fill(~allowed, torch.finfo(dtype).min)

    def _rotate_back(self, x: Tensor, mine: Tensor, whole: Tensor, places: list[int]) -> Tensor:
        """Turn each vector to its place from where it was found to stand; as it is where nothing turns."""
        rotation = fit_rotation(whole.flatten(0, 1))
        if rotation is None or not rotation.count:
            return x
        fitted = find_places(mine.flatten(0, 1), whole.flatten(0, 1), places)
        maps = rotation.matrices()
        rotated = x.clone()
        for index, (place, stood) in enumerate(zip(places, fitted, strict=True)):
            if place >= 0 and stood is not None and stood != place:
                rotated[:, :, index] = x[:, :, index] @ (maps[place] @ torch.linalg.inv(maps[stood])).mT
        return rotated


def find_places(mine: Tensor, whole: Tensor, expected: list[int]) -> list[int | None]:
    """Return for each of S vectors of one token [.., S, K] the place in the whole text at which it is the same.

    The expected one where that fits, else the nearest that does; None where none does, and for pads.
    """
    mine, whole = mine.double(), whole.double()
    size = whole.abs().max()
    fitted: list[int | None] = []
    for index, place in enumerate(expected):
        gaps = (whole - mine[..., index : index + 1, :]).abs().amax(-1).amax(0) / size
        near = (gaps < 1e-4).nonzero().flatten().tolist() if place >= 0 else []
        fitted.append(min(near, key=lambda p: abs(p - place), default=None))
    return fitted


def _moved(fitted: list[int | None], places: list[int]) -> list[int] | None:
    """By how much each real token stands too late; None where none does, or one is nowhere."""
    gaps = [None if p is None else p - n for p, n in zip(fitted, places, strict=True) if n >= 0]
    known = [gap for gap in gaps if gap is not None]
    return known if len(known) == len(gaps) and any(known) else None
