"""Explain a difference between two models: read what each attention does, say what differs, and undo it to be sure."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from clockhands.checking.checks.check import TOLERANCE, difference
from clockhands.checking.fitting import biases
from clockhands.checking.fitting.compare import find_ratio, list_numbers, make_distances, size_of
from clockhands.checking.fitting.reading import Key, MeasuredLayer, find_entries, listen, read
from clockhands.checking.fitting.rotation import (
    LAYOUT_WORDS,
    FittedRotation,
    find_base,
    find_pairs,
    fit_rotation,
    multiply_by_place,
    same_angles,
)
from clockhands.checking.fitting.words import describe_entry, describe_places, name_number
from clockhands.checking.models.subject import Subject
from clockhands.models.tap import TappedAttention

_LENGTH, _ROWS = 72, 8


@dataclass(frozen=True)
class Mismatch:
    """One thing that is done otherwise than in the reference, in words, and how it is undone there.

    ``place`` counts attentions in the order of a pass; of a state (``kind`` "entry") it counts the entries.
    ``rotations`` are maps [S, K, K] that make queries and keys those of the reference; ``gain`` is how many times as
    large logits are.
    """

    place: int
    kind: str
    words: str
    rotations: tuple[Tensor, Tensor] | None = None
    gain: float = 1.0


_Clue = tuple[str, list[Mismatch]]  # a sentence that explains, with the differences it stands for


def explain(
    ours: Subject, theirs: Subject, ids: Tensor, wanted: Tensor, size: float
) -> tuple[list[str], tuple[tuple[str, float], ...]]:
    """Explain why our logits of a text are not the ``wanted`` ones, from which they are ``size`` away.

    Returns the clues, and all that was found with how far both models are with it undone. A clue is one only if both
    agree when the differences are undone as it says, and do not without it.
    """
    try:
        limits = [subject.facts.limit - subject.facts.first for subject in (ours, theirs) if subject.facts.limit]
        pair = ModelPair(ours, theirs, max(min([_LENGTH, *limits]), ids.shape[1]))
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


class ModelPair:
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
        models = (self.mine, self.wanted)
        mine, wanted = ([x.shape for layer in layers for x in layer.sides] for layers in models)
        if mine != wanted:
            return []
        differences = []
        if len(self.entries[0]) == len(self.entries[1]):
            for index, (state, other) in enumerate(zip(*self.states, strict=True)):
                differences += [Mismatch(index, "entry", words) for words in describe_entry(state, other)]
        for index, pair in enumerate(zip(self.mine, self.wanted, strict=True)):
            differences += _compare_angles(index, *pair, self.theirs.get_module())
            differences += _compare_logits(index, *pair, self.theirs.get_module())
        said: dict[tuple[str, str], list[Mismatch]] = defaultdict(list)
        for item in differences:
            said[item.kind, item.words].append(item)
        return [
            (self._name_places(kind, [x.place for x in same]) + words, same) for (kind, words), same in said.items()
        ]

    def undo(self, ids: Tensor, undone: Sequence[Mismatch]) -> Tensor:
        """Return our logits of a text with these differences undone."""
        entries = {item.place for item in undone if item.kind == "entry"}
        states: dict[int, Tensor] = {}
        if entries:
            run = partial(self.theirs.logits, ids)
            listen(self.theirs.get_module(), self.entries[1], len(ids), lambda *_: None, states.__setitem__, run)
        numbers: dict[Key, int] = {}

        def change(key: Key, attention: TappedAttention) -> Tensor | None:
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
                    sides = zip(item.rotations, (q, k), strict=True)
                    q, k = (torch.einsum("sij,bhsj->bhsi", maps[: x.shape[2]], x) for maps, x in sides)
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


def _compare_angles(index: int, ours: MeasuredLayer, theirs: MeasuredLayer, reference: nn.Module) -> Iterator[Mismatch]:
    queries, keys = (
        _compare_rotations(mine.flatten(0, 1), wanted.flatten(0, 1), reference)
        for mine, wanted in zip(ours.sides, theirs.sides, strict=True)
    )
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
        yield Mismatch(index, "rotation", " and ".join(said), (queries[1], keys[1]))


def _compare_logits(index: int, ours: MeasuredLayer, theirs: MeasuredLayer, reference: nn.Module) -> Iterator[Mismatch]:
    if not (ours.exact and theirs.exact):
        return
    queries, keys = (  # how many times as long vectors are, whichever way they point
        find_ratio(mine.norm(dim=-1), wanted.norm(dim=-1), 2e-3)
        for mine, wanted in zip(ours.sides, theirs.sides, strict=True)
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
            yield Mismatch(index, "scale", words, gain=gain)
    both = ours.allowed_ST & theirs.allowed_ST
    tables = (part.num_embeddings for part in reference.modules() if isinstance(part, nn.Embedding))
    sizes = frozenset(size for size in tables if 8 <= size <= 512)  # as may hold a bias for each head and bucket
    if words := biases.describe_bias(ours.bias_HST, theirs.bias_HST, both, sizes):
        yield Mismatch(index, "bias", words)
    for words in _describe_mask(ours.allowed_ST, theirs.allowed_ST):
        yield Mismatch(index, "mask", words)


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
    if back == wanted_back:
        return
    if back is None:
        yield f"has no window; the reference has one of {(wanted_back or 0) + 1}"
    else:
        rest = ", the reference none" if wanted_back is None else f", not {wanted_back + 1}"
        yield f"has a window of {back + 1}{rest}"


def _compare_rotations(
    mine_NSK: Tensor, wanted_NSK: Tensor, reference: nn.Module
) -> tuple[list[str], Tensor, float] | None:
    """Compare how queries or keys turn; None where the turn of either cannot be fitted or said.

    Returns what differs in words, the maps [S, K, K] that undo it, and by how many positions the angles at place 0
    are ahead of the reference's.
    """
    plain_NK, order = wanted_NSK[:, 0], torch.arange(mine_NSK.shape[-1], device=mine_NSK.device)
    theirs, ours = fit_rotation(wanted_NSK), fit_rotation(mine_NSK, plain_NK)
    if theirs is None:
        return None
    if ours is None:  # the channels of ours in the order of the reference's: weights that are laid out otherwise
        gaps, order = (mine_NSK[:, 0, :, None] - plain_NK[:, None, :]).abs().amax(0).min(0)
        if float(gaps.max()) >= 1e-4 * size_of(plain_NK) or len(order.unique()) < len(order):
            return None
        ours = fit_rotation(mine_NSK[..., order], plain_NK)
    if ours is not None:
        undo, said = torch.linalg.inv(ours.matrices() / ours.gain)[..., order.argsort()], []
    else:  # no rotation of the reference's pairs: one of its own, in channels of another order
        ours, said = fit_rotation(mine_NSK), ["rotates queries and keys whose channels stand in another order"]
        if ours is None:
            return None
        undo = torch.linalg.inv(ours.matrices())[:, order]
    words = _describe_rotation(ours, theirs, reference)
    if words is None:
        return None
    offset = 0
    if ours.count and ours.layout == theirs.layout and ours.first_SC.shape == theirs.first_SC.shape:
        speeds, ahead = theirs.speeds_C, ours.first_SC[:1] - theirs.first_SC[:1]
        offset = next((by for by in sorted(range(-64, 65), key=abs) if same_angles(ahead, by * speeds[None])), 0)
    return [*said, *words], theirs.matrices() @ undo, offset


def _describe_rotation(ours: FittedRotation, theirs: FittedRotation, reference: nn.Module) -> list[str] | None:
    """Return how one rotation of the same vectors differs from another, in sentences; None if it has no words."""
    if not ours.count or not theirs.count:
        same = ours.count == theirs.count
        return [] if same else ["does not rotate" if theirs.count else "rotates, the reference not"]
    said: list[str] = []
    if ours.count != theirs.count:
        said.append(f"rotates {ours.count} of {ours.width} channels, the reference {theirs.count}")
    elif ours.start != theirs.start:
        said.append(f"rotates the channels from {ours.start} on, the reference from {theirs.start} on")
    if ours.layout != theirs.layout:
        said.append(f"rotates {LAYOUT_WORDS[ours.layout]}, the reference {LAYOUT_WORDS[theirs.layout]}")
    if not ours.is_rotation:
        mixed = _describe_mixture(ours, theirs) if ours.count == theirs.count else ""
        return [*said, mixed] if mixed else None
    mine, wanted = ours.rotated_SC, theirs.rotated_SC
    same = same_angles(mine, wanted)
    if not same and same_angles(mine, -wanted):
        said.append("rotates the other way")
    elif not same and ours.keeps(ours.speeds_C):
        said += _describe_speeds(ours, theirs, reference)
    elif not same:
        rows = ((mine[:, None] - wanted[None]) / 2).sin().abs().amax(-1).argmin(1)  # whole turns aside
        if not same_angles(mine, wanted[rows]):
            return None
        said.append(describe_places({"meant": torch.arange(len(rows)), "stood": rows}))
    length = find_ratio(ours.amplitude_C, torch.ones_like(ours.amplitude_C), 2e-3)
    if length is None:
        return None
    if abs(length - 1) >= 1e-4:
        scalings = [vars(part).get("attention_scaling") for part in reference.modules()]
        lacked = next((x for x in scalings if isinstance(x, float) and x != 1 and abs(length * x - 1) < 1e-3), None)
        known = f"lacks the attention factor {lacked:.4g} (YaRN's temperature)" if lacked else ""
        said.append(known or f"makes what it rotates {length:.4g} times as long")
    return said


def _describe_mixture(ours: FittedRotation, theirs: FittedRotation) -> str:
    """Of a map that is no rotation: both members of a pair turn by angles of other pairs, or one sign is wrong."""
    by_channel = ours.first_SC.new_empty(len(ours.first_SC), ours.count)
    a, b = find_pairs(0, ours.count, ours.layout)
    by_channel[:, a], by_channel[:, b] = ours.first_SC, ours.second_SC
    for layout in LAYOUT_WORDS:
        pair_of = torch.cat(find_pairs(0, ours.count, layout)).argsort() % (ours.count // 2)
        if same_angles(by_channel, theirs.first_SC[:, pair_of]):
            return f"lays angles out in {LAYOUT_WORDS[layout]} and rotates {LAYOUT_WORDS[ours.layout]}"
    for sign, member in ((-1, "first"), (1, "second")):
        if same_angles(ours.first_SC, sign * theirs.first_SC) and same_angles(ours.second_SC, -sign * theirs.second_SC):
            return f"has the sign of the {member} member of each pair wrong, which is no rotation"
    return ""


def _describe_speeds(ours: FittedRotation, theirs: FittedRotation, reference: nn.Module) -> list[str]:
    """Other frequencies: by base and factor where they are powers, by the reference's rule, else all of them."""
    mine, wanted = _find_power(ours), _find_power(theirs)
    if mine and wanted:
        said = [] if mine[0] == wanted[0] else [f"has base {name_number(mine[0])}, not {name_number(wanted[0])}"]
        if abs(mine[1] / wanted[1] - 1) > 1e-3:
            divided = f"divides positions by {mine[1]:.4g}, not by {wanted[1]:.4g}"
            said.append(f"does not divide positions by {wanted[1]:.4g}" if abs(mine[1] - 1) < 1e-3 else divided)
        return said
    slowest, share = float(ours.speeds_C[-1]), (len(ours.speeds_C) - 1) / len(ours.speeds_C)
    config: Any = getattr(reference, "config", None)
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
    rope = getattr(config, "rope_parameters", None) or {}
    for rule in [rope] if "rope_theta" in rope else rope.values():
        if not isinstance(rule, dict) or not _follows(theirs, rule, config):
            continue
        kind, theta, factor = str(rule.get("rope_type")), float(rule.get("rope_theta") or 0), rule.get("factor")
        if mine and abs(mine[1] - 1) < 1e-3:
            base = (
                []
                if abs(mine[0] / theta - 1) < 1e-3
                else [f"has base {name_number(mine[0])}, not {name_number(theta)}"]
            )
            return [*base, f"leaves out the scaling {kind!r} of the reference"]
        if slowest <= 0 or not theta or not isinstance(factor, (int, float)):
            continue
        # Rules divide the slowest pair by the whole factor: by which factor, or base, would it be what it is?
        value = float(f"{theta**-share / slowest:.4g}")
        if _follows(ours, {**rule, "factor": value}, config):
            return [f"has factor {name_number(value)}, not {name_number(factor)} in its scaling {kind!r}"]
        value = float(f"{(slowest * factor) ** (-1 / share):.4g}")
        if _follows(ours, {**rule, "rope_theta": value}, config):
            return [f"has base {name_number(value)}, not {name_number(theta)}"]
    mine_words, their_words = (list_numbers(x.speeds_C, digits=3) for x in (ours, theirs))
    return [f"rotates its pairs by {mine_words} a position, the reference by {their_words}"]


def _follows(rotation: FittedRotation, rule: dict[str, Any], config: Any) -> bool:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = copy.deepcopy(config)
    config.rope_parameters = dict(rule)
    try:
        make = ROPE_INIT_FUNCTIONS[str(rule.get("rope_type"))]
        speeds = make(config, torch.device("cpu"), seq_len=len(rotation.first_SC))[0].to(rotation.first_SC)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return speeds.shape == rotation.speeds_C.shape and rotation.keeps(speeds)


def _find_power(rotation: FittedRotation) -> tuple[float, float] | None:
    """Base and factor of frequencies that are powers of a base, divided by one factor."""
    if (rotation.speeds_C <= 0).any():
        return None
    factor = 1 / float(rotation.speeds_C[0])
    factor = round(factor, 3) if abs(factor - round(factor, 3)) < 1e-4 * factor else factor
    speeds = rotation.speeds_C * factor
    angles = rotation.rotated_SC if factor == 1 else multiply_by_place(speeds, len(rotation.first_SC))
    base = find_base(speeds, angles)
    return None if base is None else (base, factor)
