"""Explain a difference between two models: read what each attention does, say what differs, and undo it to be sure."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.reading import Key, Layer, find_entries, listen, read
from clockhands.checking.fitting.rotation_words import Settings, compare_rotations, read_settings
from clockhands.checking.fitting.words import describe_entry
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import Attention

_LENGTH, _ROWS = 72, 8


@dataclass(frozen=True)
class Explanation:
    """Clues under which both models agree, or none; ``tried`` says how far they are with each of those found undone."""

    clues: tuple[str, ...] = ()
    tried: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Difference:
    """One thing that is done otherwise than in the reference, in words, and how it is undone there.

    ``place`` counts attentions in the order of a pass; of a state (``kind`` "entry") it counts the entries of
    ``find_entries``. ``rotations`` are maps [S, K, K] that make queries and keys those of the reference.
    """

    place: int
    kind: str
    words: str
    rotations: tuple[Tensor, Tensor] | None = None


_Clue = tuple[str, tuple[Difference, ...]]
"""A sentence that explains, with the differences it stands for."""


def explain(ours: Subject, theirs: Subject, ids: Tensor, wanted: Tensor, size: float) -> Explanation:
    """Explain why our logits of a text are not the ``wanted`` ones, from which they are ``size`` away.

    A clue is one only if both agree when the differences are undone as it says, and do not without it.
    """
    try:
        limits = [subject.facts.limit - subject.facts.first for subject in (ours, theirs) if subject.facts.limit]
        pair = Pair(ours, theirs, max(min([_LENGTH, *limits]), ids.shape[1]))
        clues = pair.find_clues()
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError, NotImplementedError, AssertionError):
        return Explanation()  # a model may raise anything on a text of one token
    limit = max(TOLERANCE, size / 100)

    def left(kept: Sequence[_Clue]) -> float:
        return difference(pair.undo(ids, [item for _, items in kept for item in items]), wanted)

    tried = tuple((text, left([(text, items)])) for text, items in clues)
    if not clues or left(clues) > limit:
        return Explanation((), tried)
    for clue in list(clues):
        fewer = [item for item in clues if item is not clue]
        if fewer and left(fewer) <= limit:
            clues = fewer
    return Explanation(tuple(text for text, _ in clues), tried)


class Pair:
    """Two models that read rows of one token each, and the first on other texts with some differences undone.

    An encoder-decoder of transformers reads the same rows on both sides.
    """

    def __init__(self, ours: Subject, theirs: Subject, length: int) -> None:
        self.ours, self.theirs = ours, theirs
        self.entries = [find_entries(subject) for subject in (ours, theirs)]
        ids = theirs.tokens(1, _ROWS)[0][:, None].repeat(1, length)
        self.readings = [read(s, e, ids, _run) for s, e in zip((ours, theirs), self.entries, strict=True)]
        self.mine, self.wanted = ([*reading.measure().values()] for reading in self.readings)

    def find_clues(self) -> list[_Clue]:
        """Join what is said of several layers alike; none where both do not compute as many attentions, of one size."""
        shapes = [[(x.q_BHSK.shape, x.k_BHTK.shape) for x in layers] for layers in (self.mine, self.wanted)]
        said: dict[tuple[str, str], list[Difference]] = defaultdict(list)
        for item in self._find_differences() if shapes[0] == shapes[1] else ():
            said[item.kind, item.words].append(item)
        return [
            (self._name_places(kind, [item.place for item in same]) + words, tuple(same))
            for (kind, words), same in said.items()
        ]

    def _find_differences(self) -> Iterator[Difference]:
        """Yield what differs and has a description; what has none is left out, and so stays unexplained."""
        reference = self.theirs.get_module()
        if len(self.entries[0]) == len(self.entries[1]):
            for index, (state, other) in enumerate(zip(*(reading.states for reading in self.readings), strict=True)):
                for words in describe_entry(state, other):
                    yield Difference(index, "entry", words)
        tables = (part.num_embeddings for part in reference.modules() if isinstance(part, nn.Embedding))
        sizes = frozenset(size for size in tables if 8 <= size <= 512)  # as may hold a bias for each head and bucket
        settings = read_settings(reference)
        for index, (ours, theirs) in enumerate(zip(self.mine, self.wanted, strict=True)):
            yield from _compare_angles(index, ours, theirs, settings)
            if ours.exact and theirs.exact:
                yield from _compare_logits(index, ours, theirs, sizes)

    def undo(self, ids: Tensor, undone: Sequence[Difference]) -> Tensor:
        """Return our logits of a text with these differences undone."""
        by_layer: dict[int, list[Difference]] = defaultdict(list)
        for item in undone:
            by_layer[item.place if item.kind != "entry" else -1].append(item)
        entries = {item.place for item in by_layer.pop(-1, ())}
        states: dict[int, Tensor] = {}
        if entries:
            run = functools.partial(self.theirs.logits, ids)
            listen(self.theirs.get_module(), self.entries[1], len(ids), lambda *_: None, states.__setitem__, run)
        numbers: dict[Key, int] = {}

        def change(key: Key, attention: Attention) -> Tensor | None:
            index = numbers.setdefault(key, len(numbers))
            return self._rebuild(index, attention, by_layer[index]) if index in by_layer else None

        def enter(entry: int, _: Tensor) -> Tensor | None:
            return states[entry] if entry in entries else None

        run = functools.partial(self.ours.logits, ids)
        answer: Tensor = listen(self.ours.get_module(), self.entries[0], len(ids), change, enter, run)
        return answer

    def _rebuild(self, index: int, attention: Attention, undone: list[Difference]) -> Tensor:
        mine, wanted = self.mine[index], self.wanted[index]
        kinds = {item.kind for item in undone}
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        length, keys = q.shape[2], k.shape[2]
        for item in undone:
            if item.rotations is not None:
                q = torch.einsum("sij,bhsj->bhsi", item.rotations[0][:length], q)
                k = torch.einsum("sij,bhsj->bhsi", item.rotations[1][:keys], k)
        scale = mine.scale / (_find_gain(mine, wanted) or 1.0) if "scale" in kinds else mine.scale
        bias = (wanted if "bias" in kinds else mine).bias_HST[:, :length, :keys]
        allowed = (wanted if "mask" in kinds else mine).allowed_ST[:length, :keys]
        logits = (scale * (q @ k.mT) + bias).to(attention.logits_BHST.dtype)
        return logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)

    def _name_places(self, kind: str, places: list[int]) -> str:
        """Return ``layer 1`` and its like, with the side of an encoder-decoder; "the model" for all layers."""
        names = list(self.entries[0]) if kind == "entry" else [layer.name for layer in self.mine]
        sides = [_side(name) for name in names]
        chosen = {sides[place] for place in places}
        of_side = [place for place, side in enumerate(sides) if side in chosen]
        side = chosen.pop() if len(set(sides)) > 1 and len(chosen) == 1 else ""
        prefix = f"the {side} " if side else "the model "
        if places == of_side:
            return prefix
        if named := self._find_kind(places, of_side):
            return f"in its {named} layers {prefix}"
        numbers = [str(of_side.index(place) + 1) for place in places]
        return f"{'in the ' + side + ', ' if side else ''}layer{'s' * (len(numbers) > 1)} {', '.join(numbers)} "

    def _find_kind(self, layers: list[int], every: list[int]) -> str:
        """The kind that the reference's configuration gives to exactly these layers."""
        kinds = getattr(getattr(self.theirs.adapter, "config", None), "layer_types", None)
        if not kinds or len(kinds) != len(every):
            return ""
        names = {kinds[every.index(layer)] for layer in layers}
        own = [layer for layer, kind in zip(every, kinds, strict=True) if kind in names]
        return str(names.pop()) if len(names) == 1 and own == layers else ""


def _run(subject: Subject, ids: Tensor) -> Any:
    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "seq2seq" or not hasattr(adapter, "inputs"):
        return subject.logits(ids)
    known = min(adapter.vocabulary, adapter.opposite)
    return adapter.module(**dict.fromkeys(adapter.inputs(ids), ids % known))


def _side(name: str) -> str:
    if "encdec" in name.lower() or "encoder_attn" in name or "cross" in name:
        return "cross-attention"
    return next((side for side in ("encoder", "decoder") if side in name.split(".")), "decoder")


def _compare_angles(index: int, ours: Layer, theirs: Layer, settings: Settings) -> Iterator[Difference]:
    queries, keys = (
        compare_rotations(mine.flatten(0, 1), wanted.flatten(0, 1), settings) for mine, wanted in _vectors(ours, theirs)
    )
    if queries is None or keys is None:
        return
    if queries.words == keys.words:
        said = [" and ".join(queries.words)]
    else:
        said = [f"{' and '.join(x.words)} ({n})" for n, x in (("queries", queries), ("keys", keys)) if x.words]
    if gap := queries.ahead - keys.ahead:
        said.append(f"rotates queries as if they stood {abs(gap):.0f} {'later' if gap > 0 else 'earlier'} than keys")
    if any(said):
        yield Difference(index, "rotation", " and ".join(filter(None, said)), (queries.undo, keys.undo))


def _compare_logits(index: int, ours: Layer, theirs: Layer, sizes: frozenset[int]) -> Iterator[Difference]:
    gain = _find_gain(ours, theirs)
    if gain is not None and abs(gain - 1) > 1e-3 and not _is_amplitude(ours, theirs):
        yield Difference(index, "scale", _name_gain(gain, ours.q_BHSK.shape[-1]))
    both = ours.allowed_ST & theirs.allowed_ST
    if words := biases.describe_bias(ours.bias_HST, theirs.bias_HST, both, sizes):
        yield Difference(index, "bias", words)
    if not torch.equal(ours.allowed_ST, theirs.allowed_ST):
        for words in _describe_mask(ours.allowed_ST, theirs.allowed_ST):
            yield Difference(index, "mask", words)


def _is_amplitude(ours: Layer, theirs: Layer) -> bool:
    """Whether queries and keys are longer alike, and the scale is the same: the length of what is rotated."""
    queries, keys = (_find_length(a, b) or 0.0 for a, b in _vectors(ours, theirs))
    return abs(queries - 1) > 1e-3 and abs(queries - keys) < 1e-3 and abs(ours.scale / theirs.scale - 1) < 1e-3


def _vectors(ours: Layer, theirs: Layer) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return (ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK)


def _name_gain(gain: float, width: int) -> str:
    root = width**0.5
    if abs(gain / root - 1) < 1e-3:
        return f"does not divide its logits by √{width}"
    if abs(gain * root - 1) < 1e-3:
        return f"divides its logits by √{width} once too often"
    return f"has logits of attention {gain:.4g} times as large"


def _find_gain(mine: Layer, wanted: Layer) -> float | None:
    """Return scale times the lengths of queries and keys over the reference's; None where it is not one number."""
    queries, keys = (_find_length(a, b) for a, b in _vectors(mine, wanted))
    if queries is None or keys is None or not wanted.scale:
        return None
    return mine.scale / wanted.scale * queries * keys


def _find_length(mine: Tensor, wanted: Tensor) -> float | None:
    """How many times as long vectors are, whichever way they point; None where it is not one number."""
    ratios = mine.norm(dim=-1) / wanted.norm(dim=-1)
    ratio = float(ratios.mean())
    return ratio if float((ratios - ratio).abs().max()) < 2e-3 * ratio else None


def _describe_mask(ours_ST: Tensor, theirs_ST: Tensor) -> Iterator[str]:
    """Yield what differs as sentences about the model; nothing if either is no band along the diagonal."""
    mine, wanted = _fit_band(ours_ST), _fit_band(theirs_ST)
    if mine is None or wanted is None:
        return
    (back, ahead), (wanted_back, wanted_ahead) = mine, wanted
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


def _fit_band(allowed_ST: Tensor) -> tuple[int | None, int | None] | None:
    """Return how far back and ahead each token sees (None: as far as there are tokens); None if it is no band."""
    length, keys = allowed_ST.shape
    at = torch.arange(keys, device=allowed_ST.device)[None] - torch.arange(length, device=allowed_ST.device)[:, None]
    if not allowed_ST.any():
        return None
    back, ahead = -int(at[allowed_ST].min()), int(at[allowed_ST].max())
    if not torch.equal(allowed_ST, (at >= -back) & (at <= ahead)):
        return None
    return (None if back >= length - 1 else back), (None if ahead >= keys - 1 else ahead)
