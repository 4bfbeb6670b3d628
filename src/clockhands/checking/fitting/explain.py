"""Explain a difference between two models: fit what each attention does, say what differs, and undo it to be sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting import biases, entries
from clockhands.checking.fitting.masks import describe_mask
from clockhands.checking.fitting.reading import Layer, Reading, apply, read, read_entry
from clockhands.checking.fitting.rotation import Rotation, fit_rotation
from clockhands.checking.fitting.rotation_words import Settings, describe_rotation, find_offset, read_settings
from clockhands.checking.fitting.tap import Attention
from clockhands.checking.models.subject import Subject

_ROWS, _LENGTH = 8, 72


@dataclass(frozen=True)
class Difference:
    """One thing that an attention does otherwise than the reference's, in words, and how it is undone there.

    ``layer`` counts attentions from 0 in the order of a pass; -1 is what enters the first block. ``rotations`` are maps
    [S, K, K] that make queries and keys those of the reference.
    """

    layer: int
    kind: str
    words: str
    rotations: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Clue:
    """A sentence that explains, with the differences it stands for."""

    text: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Explanation:
    """Clues under which both models agree, or none; ``tried`` says how far they are with each of those found undone."""

    clues: tuple[Clue, ...] = ()
    tried: tuple[tuple[str, float], ...] = ()


class Pair:
    """Two readings of the same texts, and the same models on other texts with some differences undone."""

    def __init__(self, ours: Subject, theirs: Subject, length: int) -> None:
        self.ours, self.theirs = ours, theirs
        self.mine, self.wanted = (read_positions(subject, theirs, length) for subject in (ours, theirs))

    @property
    def comparable(self) -> bool:
        """Whether both compute as many attentions, of the same shapes."""
        shapes = [[(x.q_BHSK.shape, x.k_BHTK.shape) for x in r.layers] for r in (self.mine, self.wanted)]
        return shapes[0] == shapes[1]

    def undo(self, ids: Tensor, undone: Sequence[Difference]) -> Tensor:
        """Return our logits of a text with these differences undone."""
        by_layer: dict[int, list[Difference]] = {}
        for item in undone:
            by_layer.setdefault(item.layer, []).append(item)

        def change(index: int, attention: Attention) -> Tensor | None:
            return self._rebuild(index, attention, by_layer[index]) if index in by_layer else None

        entry = read_entry(self.theirs, ids) if -1 in by_layer else None
        return apply(self.ours, lambda: self.ours.logits(ids), len(ids), change, entry)

    def _rebuild(self, index: int, attention: Attention, undone: list[Difference]) -> Tensor:
        mine, wanted = self.mine.layers[index], self.wanted.layers[index]
        kinds = {item.kind for item in undone}
        q, k = attention.q_BHSK.double(), attention.k_BHTK.double()
        length, keys = q.shape[2], k.shape[2]
        for item in undone:
            if item.rotations is not None:
                q = torch.einsum("sij,bhsj->bhsi", item.rotations[0][:length], q)
                k = torch.einsum("sij,bhsj->bhsi", item.rotations[1][:keys], k)
        scale = mine.scale / (find_gain(mine, wanted) or 1.0) if "scale" in kinds else mine.scale
        bias = (wanted if "bias" in kinds else mine).bias_HST[:, :length, :keys]
        allowed = (wanted if "mask" in kinds else mine).allowed_ST[:length, :keys]
        logits = scale * (q @ k.mT) + bias
        dtype = attention.logits_BHST.dtype
        return logits.to(dtype).masked_fill(~allowed, torch.finfo(dtype).min)


def read_positions(subject: Subject, other: Subject, length: int) -> Reading:
    """Read a model on rows of one token each, whose states depend on position only where the model adds one."""
    tokens = other.tokens(1, _ROWS)[0]
    ids = tokens[:, None].repeat(1, length)
    return read(subject, _call(subject, ids), _ROWS)


def _call(subject: Subject, ids: Tensor) -> Callable[[], Any]:
    """One pass; an encoder-decoder of transformers reads the same rows on both sides."""
    adapter: Any = subject.adapter
    if getattr(adapter, "task", "") != "seq2seq" or not hasattr(adapter, "inputs"):
        return lambda: subject.logits(ids)

    def run() -> Any:
        arguments = adapter.inputs(ids)
        with torch.no_grad():
            return adapter.module(**{name: ids % min(adapter.vocabulary, adapter.opposite) for name in arguments})

    return run


def find_gain(mine: Layer, wanted: Layer) -> float | None:
    """Return scale times the lengths of queries and keys over the reference's; None where it is not one number."""
    lengths = [_find_length(a, b) for a, b in ((mine.q_BHSK, wanted.q_BHSK), (mine.k_BHTK, wanted.k_BHTK))]
    if not (mine.exact and wanted.exact) or None in lengths or not wanted.scale:
        return None
    return mine.scale / wanted.scale * float(lengths[0] or 0) * float(lengths[1] or 0)


def _find_length(mine: Tensor, wanted: Tensor) -> float | None:
    """How many times as long vectors are, whichever way they point; None where it is not one number."""
    ratios = mine.norm(dim=-1) / wanted.norm(dim=-1)
    ratio = float(ratios.mean())
    return ratio if float((ratios - ratio).abs().max()) < 2e-3 * ratio else None


def explain(ours: Subject, theirs: Subject, ids: Tensor, wanted: Tensor, size: float) -> Explanation:
    """Explain why our logits of a text are not the ``wanted`` ones, from which they are ``size`` away.

    A clue is one only if both agree when the differences are undone as it says, and do not without it.
    """
    try:
        pair = Pair(ours, theirs, max(_LENGTH, ids.shape[1]))
        if not pair.comparable:
            return Explanation()
        clues = group(pair, list(find_differences(pair)))
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


def find_differences(pair: Pair) -> Iterator[Difference]:
    """Yield what differs and has a description, layer by layer; what has none is left out, and so stays unexplained."""
    mine, wanted = pair.mine.entry_BSD, pair.wanted.entry_BSD
    if mine is not None and wanted is not None and entries.differ(mine, wanted):
        for words in entries.describe_entry(mine, wanted) or ():
            yield Difference(-1, "entry", words)
    assert pair.theirs.module is not None
    settings, sizes = read_settings(pair.theirs.module), _find_sizes(pair.theirs.module)
    for index, (ours, theirs) in enumerate(zip(pair.mine.layers, pair.wanted.layers, strict=True)):
        yield from _compare_angles(index, ours, theirs, settings)
        yield from _compare_logits(index, ours, theirs, sizes)


def _compare_angles(index: int, ours: Layer, theirs: Layer, settings: Settings) -> Iterator[Difference]:
    sides = [(ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK)]
    queries, keys = (compare_rotations(mine.flatten(0, 1), wanted.flatten(0, 1), settings) for mine, wanted in sides)
    if queries is None or keys is None:
        return
    rotations = (queries.undo, keys.undo)
    if queries.words == keys.words:
        said = [" and ".join(queries.words)]
    else:
        said = [f"{' and '.join(x.words)} ({n})" for n, x in (("queries", queries), ("keys", keys)) if x.words]
    if gap := queries.ahead - keys.ahead:
        said.append(f"rotates queries as if they stood {abs(gap):.0f} {'later' if gap > 0 else 'earlier'} than keys")
    if any(said):
        yield Difference(index, "rotation", " and ".join(filter(None, said)), rotations)


@dataclass(frozen=True)
class _Rotated:
    """How queries or keys differ: in words, what undoes it, and by how many positions they are ahead."""

    words: list[str]
    undo: Tensor
    ahead: float


def compare_rotations(mine_NSK: Tensor, wanted_NSK: Tensor, settings: Settings) -> _Rotated | None:
    """Compare how queries or keys turn; None where the turn of either cannot be fitted or said."""
    theirs, ours = fit_rotation(wanted_NSK), fit_rotation(mine_NSK, wanted_NSK[:, 0])
    order = torch.arange(mine_NSK.shape[-1], device=mine_NSK.device)
    if theirs is not None and ours is None:
        fitted = find_order(mine_NSK[:, 0], wanted_NSK[:, 0])
        order = order if fitted is None else fitted
        ours = None if fitted is None else fit_rotation(mine_NSK[..., order], wanted_NSK[:, 0])
        if fitted is not None and ours is None:  # no rotation of the reference's pairs: one of its own
            ours = fit_rotation(mine_NSK)
            return None if ours is None else _compare_reordered(ours, theirs, order, settings)
    if theirs is None or ours is None:
        return None
    ahead = (find_offset(ours, theirs) or 0.0) if ours.layout == theirs.layout else 0.0
    words = describe_rotation(_move_back(ours, ahead, theirs), theirs, settings)
    if words is None:
        return None
    undo = theirs.matrices() @ torch.linalg.inv(ours.matrices() / ours.gain)
    return _Rotated(words, undo[..., order.argsort()], ahead)


def _compare_reordered(ours: Rotation, theirs: Rotation, order: Tensor, settings: Settings) -> _Rotated | None:
    words = describe_rotation(ours, theirs, settings)
    if words is None:
        return None
    undo = theirs.matrices() @ torch.linalg.inv(ours.matrices())[:, order]
    return _Rotated(["rotates queries and keys whose channels stand in another order", *words], undo, 0.0)


def find_order(mine_NK: Tensor, wanted_NK: Tensor) -> Tensor | None:
    """Return the channels of ours in the order of the reference's: of a model whose weights are laid out otherwise."""
    gaps = (mine_NK[:, :, None] - wanted_NK[:, None, :]).abs().amax(0)
    order = gaps.argmin(0)
    exact = float(gaps.amin(0).max()) < 1e-4 * float(wanted_NK.abs().max())
    return order if exact and len(set(order.tolist())) == len(order) else None


def _move_back(ours: Rotation, ahead: float, theirs: Rotation) -> Rotation:
    back = ahead * theirs.speeds_C
    return replace(ours, first_SC=ours.first_SC - back, second_SC=ours.second_SC - back) if ahead else ours


def _find_sizes(module: nn.Module) -> frozenset[int]:
    """The sizes of tables so small that they may hold a bias for each head and bucket."""
    tables = (part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding))
    return frozenset(size for size in tables if 8 <= size <= 512)


def _compare_logits(index: int, ours: Layer, theirs: Layer, sizes: frozenset[int]) -> Iterator[Difference]:
    if not (ours.exact and theirs.exact):
        return
    gain = find_gain(ours, theirs)
    if gain is not None and abs(gain - 1) > 1e-3 and not _is_amplitude(ours, theirs):
        yield Difference(index, "scale", _name_gain(gain, ours.q_BHSK.shape[-1]))
    both = ours.allowed_ST & theirs.allowed_ST
    if biases.differ(ours.bias_HST, theirs.bias_HST, both):
        for words in biases.describe_bias(ours.bias_HST, theirs.bias_HST, both, sizes) or ():
            yield Difference(index, "bias", words)
    if not torch.equal(ours.allowed_ST, theirs.allowed_ST):
        for words in describe_mask(ours.allowed_ST, theirs.allowed_ST) or ():
            yield Difference(index, "mask", words)


def _is_amplitude(ours: Layer, theirs: Layer) -> bool:
    """Whether queries and keys are longer alike, and the scale is the same: the length of what is rotated."""
    lengths = [_find_length(a, b) or 0.0 for a, b in ((ours.q_BHSK, theirs.q_BHSK), (ours.k_BHTK, theirs.k_BHTK))]
    return (
        abs(lengths[0] - 1) > 1e-3 and abs(lengths[0] - lengths[1]) < 1e-3 and abs(ours.scale / theirs.scale - 1) < 1e-3
    )


def _name_gain(gain: float, width: int) -> str:
    root = width**0.5
    if abs(gain / root - 1) < 1e-3:
        return f"does not divide its logits by √{width}"
    if abs(gain * root - 1) < 1e-3:
        return f"divides its logits by √{width} once too often"
    return f"has logits of attention {gain:.4g} times as large"


def group(pair: Pair, differences: list[Difference]) -> list[Clue]:
    """Join what is said of several layers alike, and name the layers where it is not all of them."""
    said: dict[tuple[str, str], list[Difference]] = {}
    for item in differences:
        said.setdefault((item.kind, item.words), []).append(item)
    return [
        Clue(_name_layers(pair, [item.layer for item in same]) + words, tuple(same))
        for (_, words), same in said.items()
    ]


def _name_layers(pair: Pair, layers: list[int]) -> str:
    """Return ``layer 1`` and its like, with the side of an encoder-decoder; "it" for all layers."""
    if layers == [-1]:
        return "the model "
    names = [layer.name for layer in pair.mine.layers]
    sides = [_side(name) for name in names]
    of_side = [i for i, side in enumerate(sides) if side in {sides[layer] for layer in layers}]
    side = sides[layers[0]] if len(set(sides)) > 1 and len({sides[layer] for layer in layers}) == 1 else ""
    prefix = f"the {side} " if side else "the model "
    if layers == of_side:
        return prefix
    kind = _kind(pair.theirs, layers, of_side)
    if kind:
        return f"in its {kind} layers {prefix}"
    numbers = [str(of_side.index(layer) + 1) for layer in layers]
    return f"{'in the ' + side + ', ' if side else ''}layer{'s' * (len(numbers) > 1)} {', '.join(numbers)} "


def _side(name: str) -> str:
    if "encdec" in name.lower() or "encoder_attn" in name or "cross" in name:
        return "cross-attention"
    return next((side for side in ("encoder", "decoder") if side in name.split(".")), "decoder")


def _kind(subject: Subject, layers: list[int], every: list[int]) -> str:
    """The kind that a configuration gives to exactly these layers."""
    kinds = getattr(getattr(subject.adapter, "config", None), "layer_types", None)
    if not kinds or len(kinds) != len(every):
        return ""
    names = {kinds[every.index(layer)] for layer in layers}
    own = [layer for layer, kind in zip(every, kinds, strict=True) if kind in names]
    return next(iter(names)) if len(names) == 1 and own == layers else ""
