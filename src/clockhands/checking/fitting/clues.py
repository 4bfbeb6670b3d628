"""Clues: differences of several layers that are said in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from clockhands.checking.fitting.differences import Difference
from clockhands.checking.fitting.pair import Pair
from clockhands.checking.models.subject import Subject


@dataclass(frozen=True)
class Clue:
    """A sentence that explains, with the differences it stands for."""

    text: str
    differences: tuple[Difference, ...]


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
