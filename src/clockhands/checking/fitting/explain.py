"""Explain a difference between two models: read what each attention does, say what differs, and undo it to be sure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.compare import find_ratio, make_distances
from clockhands.checking.fitting.reading import Key, Layer, find_entries, listen, read
from clockhands.checking.fitting.rotation_words import Settings, compare_rotations, read_settings
from clockhands.checking.fitting.words import describe_entry
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_LENGTH, _ROWS = 72, 8


@dataclass(frozen=True)
class Difference:
    """One thing that is done otherwise than in the reference, in words, and how it is undone there.

    ``place`` counts attentions in the order of a pass; of a state (``kind`` "entry") it counts the entries of
    ``find_entries``. ``rotations`` are maps [S, K, K] that make queries and keys those of the reference; ``gain`` is
    how many times as large logits are.
    """

    place: int
    kind: str
    words: str
    rotations: tuple[Tensor, Tensor] | None = None
    gain: float = 1.0


_Clue = tuple[str, list[Difference]]
"""A sentence that explains, with the differences it stands for."""


def explain(
    ours: Subject, theirs: Subject, ids: Tensor, wanted: Tensor, size: float
) -> tuple[list[str], tuple[tuple[str, float], ...]]:
    """Explain why our logits of a text are not the ``wanted`` ones, from which they are ``size`` away.

    Returns the clues, and all that was found with how far both models are with it undone. A clue is one only if both
    agree when the differences are undone as it says, and do not without it.
    """
    try:
        limits = [subject.facts.limit - subject.facts.first for subject in (ours, theirs) if subject.facts.limit]
        pair = Pair(ours, theirs, max(min([_LENGTH, *limits]), ids.shape[1]))
        clues = pair.find_clues()
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError, NotImplementedError, AssertionError):
        return [], ()  # a model may raise anything on a text of one token
    limit = max(TOLERANCE, size / 100)

    def left(kept: Sequence[_Clue]) -> float:
        return difference(pair.undo(ids, [item for _, items in kept for item in items]), wanted)

    tried = tuple((clue[0], left([clue])) for clue in clues)
    if not clues or left(clues) > limit:
        return [], tried
    for clue in list(clues):
        fewer = [item for item in clues if item is not clue]
        if fewer and left(fewer) <= limit:
            clues = fewer
    return [text for text, _ in clues], tried


class Pair:
    """Two models that read rows of one token each, and the first on other texts with some differences undone.

    An encoder-decoder of transformers reads the same rows on both sides.
    """

    def __init__(self, ours: Subject, theirs: Subject, length: int) -> None:
        self.ours, self.theirs = ours, theirs
        self.entries = [find_entries(subject) for subject in (ours, theirs)]
        ids = theirs.tokens(1, _ROWS)[0][:, None].repeat(1, length)
        readings = [read(s, e, ids, _run) for s, e in zip((ours, theirs), self.entries, strict=True)]
        self.states = [reading.states for reading in readings]
        self.mine, self.wanted = ([*reading.measure().values()] for reading in readings)

    def find_clues(self) -> list[_Clue]:
        """Return what differs and has a description, of several layers alike at once; what has none is left out.

        None where both do not compute as many attentions, of one size.
        """
        if len(self.mine) != len(self.wanted) or any(
            x.q_BHSK.shape != y.q_BHSK.shape or x.k_BHTK.shape != y.k_BHTK.shape
            for x, y in zip(self.mine, self.wanted, strict=True)
        ):
            return []
        differences = []
        if len(self.entries[0]) == len(self.entries[1]):
            for index, (state, other) in enumerate(zip(*self.states, strict=True)):
                differences += [Difference(index, "entry", words) for words in describe_entry(state, other)]
        reference = self.theirs.get_module()
        tables = (part.num_embeddings for part in reference.modules() if isinstance(part, nn.Embedding))
        sizes = frozenset(size for size in tables if 8 <= size <= 512)  # as may hold a bias for each head and bucket
        settings = read_settings(reference)
        for index, (ours, theirs) in enumerate(zip(self.mine, self.wanted, strict=True)):
            differences += [
                *_compare_angles(index, ours, theirs, settings),
                *_compare_logits(index, ours, theirs, sizes),
            ]
        said: dict[tuple[str, str], list[Difference]] = defaultdict(list)
        for item in differences:
            said[item.kind, item.words].append(item)
        return [
            (self._name_places(kind, [x.place for x in same]) + words, same) for (kind, words), same in said.items()
        ]

    def undo(self, ids: Tensor, undone: Sequence[Difference]) -> Tensor:
        """Return our logits of a text with these differences undone."""
        entries = {item.place for item in undone if item.kind == "entry"}
        states: dict[int, Tensor] = {}
        if entries:
            run = partial(self.theirs.logits, ids)
            listen(self.theirs.get_module(), self.entries[1], len(ids), lambda *_: None, states.__setitem__, run)
        numbers: dict[Key, int] = {}

        def change(key: Key, attention: Attention) -> Tensor | None:
            index = numbers.setdefault(key, len(numbers))
            items = [item for item in undone if item.kind != "entry" and item.place == index]
            if not items:
                return None
            mine, wanted, kinds = self.mine[index], self.wanted[index], {item.kind for item in items}
            q, k, scale = attention.q_BHSK.double(), attention.k_BHTK.double(), mine.scale
            length, keys = q.shape[2], k.shape[2]
            for item in items:
                scale /= item.gain
                if item.rotations is not None:
                    q = torch.einsum("sij,bhsj->bhsi", item.rotations[0][:length], q)
                    k = torch.einsum("sij,bhsj->bhsi", item.rotations[1][:keys], k)
            bias = (wanted if "bias" in kinds else mine).bias_HST[:, :length, :keys]
            allowed = (wanted if "mask" in kinds else mine).allowed_ST[:length, :keys]
            logits = (scale * (q @ k.mT) + bias).to(attention.logits_BHST.dtype)
            return logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)

        def enter(entry: int, _: Tensor) -> Tensor | None:
            return states[entry] if entry in entries else None

        run = partial(self.ours.logits, ids)
        answer: Tensor = listen(self.ours.get_module(), self.entries[0], len(ids), change, enter, run)
        return answer

    def _name_places(self, kind: str, places: list[int]) -> str:
        """Return ``layer 1`` and its like, with the side of an encoder-decoder; "the model" for all layers."""
        names = list(self.entries[0]) if kind == "entry" else [layer.name for layer in self.mine]
        sides = [_find_side(name) for name in names]
        chosen = {sides[place] for place in places}
        of_side = [place for place, side in enumerate(sides) if side in chosen]
        side = chosen.pop() if len(set(sides)) > 1 and len(chosen) == 1 else ""
        prefix = f"the {side} " if side else "the model "
        if places == of_side:
            return prefix
        # The kind that the reference's configuration gives to exactly these layers.
        kinds = getattr(getattr(self.theirs.adapter, "config", None), "layer_types", None) or []
        if len(kinds) == len(of_side):
            named = {kinds[of_side.index(place)] for place in places}
            if len(named) == 1 and places == [p for p, kind in zip(of_side, kinds, strict=True) if kind in named]:
                return f"in its {named.pop()} layers {prefix}"
        numbers = [str(of_side.index(place) + 1) for place in places]
        return f"{f'in the {side}, ' if side else ''}layer{'s' * (len(numbers) > 1)} {', '.join(numbers)} "


def _run(subject: Subject, ids: Tensor) -> Any:
    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "seq2seq" or not hasattr(adapter, "inputs"):
        return subject.logits(ids)
    known = min(adapter.vocabulary, adapter.opposite)
    return adapter.module(**dict.fromkeys(adapter.inputs(ids), ids % known))


def _find_side(name: str) -> str:
    if "encdec" in name.lower() or "encoder_attn" in name or "cross" in name:
        return "cross-attention"
    return "encoder" if "encoder" in name.split(".") else "decoder"


def _compare_angles(index: int, ours: Layer, theirs: Layer, settings: Settings) -> Iterator[Difference]:
    queries = compare_rotations(ours.q_BHSK.flatten(0, 1), theirs.q_BHSK.flatten(0, 1), settings)
    keys = compare_rotations(ours.k_BHTK.flatten(0, 1), theirs.k_BHTK.flatten(0, 1), settings)
    if queries is None or keys is None:
        return
    if queries[0] == keys[0]:
        said = queries[0]
    else:
        said = [f"{' and '.join(words)} ({n})" for n, (words, *_) in (("queries", queries), ("keys", keys)) if words]
    if gap := queries[2] - keys[2]:
        where = f"{abs(gap):.0f} {'later' if gap > 0 else 'earlier'} than keys"
        said = [*said, f"rotates queries as if they stood {where}"]
    if said:
        yield Difference(index, "rotation", " and ".join(said), (queries[1], keys[1]))


def _compare_logits(index: int, ours: Layer, theirs: Layer, sizes: frozenset[int]) -> Iterator[Difference]:
    """Yield differences of the scale, the bias and the mask, where both are known."""
    if not (ours.exact and theirs.exact):
        return
    queries, keys = (  # how many times as long vectors are, whichever way they point
        find_ratio(mine.norm(dim=-1), wanted.norm(dim=-1), 2e-3)
        for mine, wanted in ((ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK))
    )
    if queries is not None and keys is not None and theirs.scale:
        scale = ours.scale / theirs.scale
        gain, root = scale * queries * keys, ours.q_BHSK.shape[-1] ** 0.5
        # Queries and keys that are longer alike at the same scale have the length of what is rotated, said there.
        amplitude = abs(queries - 1) > 1e-3 and abs(queries - keys) < 1e-3 and abs(scale - 1) < 1e-3
        words = f"has logits of attention {gain:.4g} times as large"
        if abs(gain / root - 1) < 1e-3:
            words = f"does not divide its logits by √{ours.q_BHSK.shape[-1]}"
        elif abs(gain * root - 1) < 1e-3:
            words = f"divides its logits by √{ours.q_BHSK.shape[-1]} once too often"
        if abs(gain - 1) > 1e-3 and not amplitude:
            yield Difference(index, "scale", words, gain=gain)
    both = ours.allowed_ST & theirs.allowed_ST
    if words := biases.describe_bias(ours.bias_HST, theirs.bias_HST, both, sizes):
        yield Difference(index, "bias", words)
    if not torch.equal(ours.allowed_ST, theirs.allowed_ST):
        for words in _describe_mask(ours.allowed_ST, theirs.allowed_ST):
            yield Difference(index, "mask", words)


def _describe_mask(ours_ST: Tensor, theirs_ST: Tensor) -> Iterator[str]:
    """Yield what differs as sentences about the model; nothing if either is no band along the diagonal."""
    bands: list[tuple[int | None, int | None]] = []  # how far back and ahead; None: as far as there are tokens
    for allowed in (ours_ST, theirs_ST):
        at, (length, keys) = make_distances(allowed), allowed.shape
        low, high = (int(at[allowed].min()), int(at[allowed].max())) if allowed.any() else (1, 0)
        if not torch.equal(allowed, (at >= low) & (at <= high)) or low > high:
            return
        bands.append((None if -low >= length - 1 else -low, None if high >= keys - 1 else high))
    (back, ahead), (wanted_back, wanted_ahead) = bands
    if ahead != wanted_ahead:
        if ahead is None:
            yield "lets every token see all later ones"
        elif ahead < 0:
            yield "does not let a token see itself" if ahead == -1 else f"hides the last {-ahead} tokens from each"
        elif wanted_ahead is None:
            yield "hides later tokens, which the reference shows"
        else:
            yield f"lets every token see {ahead} later one{'s' * (ahead != 1)}"
    if back != wanted_back and back is None:
        yield f"has no window; the reference has one of {(wanted_back or 0) + 1}"
    elif back != wanted_back and back is not None:
        rest = ", the reference none" if wanted_back is None else f", not {wanted_back + 1}"
        yield f"has a window of {back + 1}{rest}"
