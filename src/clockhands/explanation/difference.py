"""Finds where two position configurations part: the layer, the channel, the angle by distance, and the field."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import NOT_KNOWN, Layer, Positions, look_up

EQUAL, EQUAL_IN_FLOAT32 = 1e-9, 1e-6
"""Relative difference of two frequencies that counts as none: of numbers in text, and in GGUF, which keeps float32."""
DISTANCES = (1, 16, 256, 4096, 65536)
OF_A_RULE = (
    "rule", "factor", "original_length", "beta_fast", "beta_slow", "truncate", "low_frequency_factor", "extrapolation",
    "high_frequency_factor", "factors", "long_factors", "share",
)  # fmt: skip
"""Fields that mean nothing without the rule that reads them."""
FIELDS = ("base", "channels", *OF_A_RULE, "amplitude", "logit_factor", "pairing", "direction")


@dataclass(frozen=True)
class Difference:
    """The first place at which two configurations part, and why.

    ``layer``: its number, with ``kind``; None where only keys differ that are not understood. ``layers``: all that
    differ. ``what``: what differs there, a sentence.
    ``channel``: the first pair whose frequency differs, with both frequencies in radians per token.
    ``errors``: distance in tokens -> the largest error of an angle there, in radians, at most π.
    ``causes``: (field, its value and origin here, its value and origin there).
    """

    layer: int | None
    kind: str
    layers: tuple[int, ...]
    what: str
    channel: int | None = None
    frequencies: tuple[float, float] | None = None
    errors: dict[int, float] = dataclasses.field(default_factory=dict)
    causes: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class _Terms:
    """How two configurations are compared.

    ``length``: of the text in tokens. ``same_format``: whether the pairing is compared: converters to GGUF and from
    Mistral's files reorder the weights, so that another pairing means the same there. ``tolerance``: see `EQUAL`.
    """

    length: int | None
    same_format: bool
    tolerance: float

    def differ(self, left: float, right: float) -> bool:
        """Whether two numbers differ by more than the rounding of the files: llama.cpp has 1e-30 for pairs at rest."""
        return abs(left - right) > max(self.tolerance * max(abs(left), abs(right)), 1e-20)

    def same(self, a: Rotation, b: Rotation) -> bool:
        """Whether two rotations turn by the same angles, with the same amplitude."""
        left, right = a.frequencies(self.length), b.frequencies(self.length)
        if len(left) != len(right) or any(map(self.differ, left, right)):
            return False
        same_pairs = (a.pairing, a.direction) == (b.pairing, b.direction)
        return same_pairs and not self.differ(compute_scale(a), compute_scale(b))


def compare(first: Positions, second: Positions, length: int | None = None) -> Difference | None:
    """Return the first difference between two configurations; None if every layer means the same.

    ``length``: of the text in tokens, where frequencies depend on it; the longer claimed length if none is given.
    """
    if len(first.layers) != len(second.layers):
        what = f"{len(first.layers)} layers against {len(second.layers)}"
        return Difference(min(len(first.layers), len(second.layers)), "", (), what)
    length = length or max(first.claimed_length or 0, second.claimed_length or 0) or None
    formats = {_name_file_format(first), _name_file_format(second)}
    terms = _Terms(length, len(formats) == 1, EQUAL_IN_FLOAT32 if "llama.cpp" in formats else EQUAL)
    if any(positions.entry.startswith(NOT_KNOWN) for positions in (first, second)):
        return _compare_entries(first, second)
    differences = {}
    for index, (here, there) in enumerate(zip(first.layers, second.layers, strict=True)):
        if (difference := _compare_layers(index, here, there, terms)) is not None:
            differences[index] = difference
    if not differences:
        return _compare_entries(first, second)
    return dataclasses.replace(next(iter(differences.values())), layers=tuple(differences))


def _compare_entries(first: Positions, second: Positions) -> Difference | None:
    """Return that positions enter, not by rotation, and not alike or not as far; or that strange keys differ."""
    both = [positions.entry or "rotation alone" for positions in (first, second)]
    # The weights tell what one program names, and each has words of its own for no rotation at all.
    still = all(side.startswith("no rotation") for side in both)
    same = still and (any("the weights tell" in side for side in both) or all("rotation (" in side for side in both))
    if both[0] != both[1] and not same:
        return Difference(None, "", (), f"positions enter by {both[0]} against {both[1]}")
    if first.entry and both[0] == both[1] and first.claimed_length != second.claimed_length:
        cause = ("claimed length", _format_side(first.claimed_length), _format_side(second.claimed_length))
        return Difference(None, "", (), "the lengths of what is added for positions differ", causes=(cause,))
    ours, theirs = [
        {key.split("rope_parameters.")[-1].split("rope_scaling.")[-1]: value for key, value in positions.strange}
        for positions in (first, second)
    ]
    different = [key for key in dict.fromkeys((*ours, *theirs)) if ours.get(key) != theirs.get(key)]
    # What one file leaves out, and what it says in other words, is what transformers' class makes of it.
    filled = {key: [look_up(positions.config, key) for positions in (first, second)] for key in different}
    different = [key for key in different if filled[key][0] is None or filled[key][0] != filled[key][1]]
    if not different:
        return None
    causes = tuple((key, ours.get(key, "not set"), theirs.get(key, "not set")) for key in different)
    what = "no layer differs by what is understood, but keys differ that are not"
    return Difference(None, "", (), what, causes=causes)


def _compare_layers(index: int, here: Layer, there: Layer, terms: _Terms) -> Difference | None:
    a, b = here.rotation, there.rotation
    if (a is None) != (b is None):
        rotates = ("does not rotate", "rotates")
        return Difference(index, here.kind, (), f"the layer {rotates[a is not None]} against {rotates[b is not None]}")
    if a is not None and b is not None and (difference := _compare_rotations(index, here, a, b, terms)) is not None:
        return difference
    for name, unit in (("window", "tokens of window"), ("chunk", "tokens of a chunk"), ("temperature", "")):
        left, right = getattr(here, name), getattr(there, name)
        if left != right:
            what = f"{_format_side(left)} {unit} against {_format_side(right)}".replace("  ", " ")
            return Difference(index, here.kind, (), what, causes=((name, _format_side(left), _format_side(right)),))
    return None


def _name_file_format(positions: Positions) -> str:
    """Return the kind of file that a configuration comes from: programs that read config.json share one."""
    own = ("llama.cpp", "Mistral", "Meta", "ExecuTorch", "Megatron")
    return positions.program if positions.program in own else "config.json"


def _format_side(value: object) -> str:
    return "none" if value in (None, "") else f"{value:,}" if isinstance(value, int) else str(value)


def _compare_rotations(index: int, layer: Layer, a: Rotation, b: Rotation, terms: _Terms) -> Difference | None:
    left, right = a.frequencies(terms.length), b.frequencies(terms.length)
    pairs = enumerate(zip(left, right, strict=False))
    channel = next((pair for pair, two in pairs if terms.differ(*two)), None)
    if len(left) != len(right):
        what = f"{len(left)} pairs of channels rotate against {len(right)}"
        channel = min(len(left), len(right)) if channel is None else channel
    elif channel is not None:
        what = f"pair {channel} rotates by {left[channel]:.6g} against {right[channel]:.6g} radians per token"
    elif terms.same_format and (a.pairing != b.pairing or a.direction != b.direction):
        senses = [f"{r.pairing}{'' if r.direction == 1 else ', in the opposite sense'}" for r in (a, b)]
        what = f"channels are paired as {senses[0]} against {senses[1]}"
    elif terms.differ(compute_scale(a), compute_scale(b)):
        what = f"logits are multiplied by {compute_scale(a):.4f} against {compute_scale(b):.4f}"
    else:
        return None
    causes = _find_causes(a, b, terms)
    if channel is None:
        return Difference(index, layer.kind, (), what, causes=causes)
    errors = {distance: compute_largest_error(left, right, distance) for distance in DISTANCES}
    both = (left[channel], right[channel]) if channel < min(len(left), len(right)) else None
    return Difference(index, layer.kind, (), what, channel, both, errors, causes)


def compute_scale(rotation: Rotation) -> float:
    """Return what rotation multiplies the logits by: the square of its amplitude, and a factor of the architecture."""
    return rotation.amplitude * rotation.amplitude * rotation.logit_factor


def compute_largest_error(left: list[float], right: list[float], distance: int) -> float:
    """Return the largest difference of two angles at a distance, in radians; a whole turn is none, so at most π."""
    error = 0.0
    for a, b in zip(left, right, strict=False):
        rest = abs(a - b) * distance % (2 * math.pi)
        error = max(error, min(rest, 2 * math.pi - rest))
    return error


def _find_causes(a: Rotation, b: Rotation, terms: _Terms) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that make two rotations differ.

    A field that alone accounts for everything is told alone; otherwise all whose exchange changes something. Where the
    rules differ, the rule is one field with all that only it reads.
    """
    parts = {name: [name] for name in FIELDS if name not in OF_A_RULE or a.rule == b.rule}
    if a.rule != b.rule:
        parts["rule"] = [*OF_A_RULE]
    if not terms.same_format:
        a = dataclasses.replace(a, pairing=b.pairing, direction=b.direction)
    different = [name for name, part in parts.items() if any(getattr(a, field) != getattr(b, field) for field in part)]
    swapped = {
        name: dataclasses.replace(b, **{field: getattr(a, field) for field in parts[name]}) for name in different
    }
    alone = [name for name in different if terms.same(swapped[name], a)]
    with_effect = [name for name in different if not terms.same(swapped[name], b)]
    named = alone[:1] or with_effect or different
    return tuple((name, _format_value(a, name), _format_value(b, name)) for name in named)


def _format_value(rotation: Rotation, name: str) -> str:
    shown = getattr(rotation, name)
    if isinstance(shown, float):
        shown = f"{shown:,.6g}"
    elif isinstance(shown, tuple):
        shown = f"a list of {len(shown)}"
    origin = rotation.origin.get(name)
    return f"{shown} ({origin})" if origin else f"{shown}"
