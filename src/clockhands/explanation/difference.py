"""Finds where two position configurations part: the layer, the channel, the angle by distance, and the field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import NOT_KNOWN, Layer, Positions, look_up

EQUAL, EQUAL_IN_FLOAT32 = 1e-9, 1e-6
"""Relative difference of two frequencies that counts as none: of numbers in text, and in GGUF, which keeps float32."""
DISTANCES = (1, 16, 256, 4096, 65536)
OWN_FILES = ("llama.cpp", "Mistral", "Meta", "ExecuTorch", "DeepSeek", "Megatron")
"""Programs with a kind of file of their own; the others share ``config.json``."""
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

    what: str
    layer: int | None = None
    kind: str = ""
    layers: tuple[int, ...] = ()
    channel: int | None = None
    frequencies: tuple[float, float] | None = None
    errors: dict[int, float] = dataclasses.field(default_factory=dict)
    causes: tuple[tuple[str, str, str], ...] = ()


Part = Callable[[Rotation, Rotation], Difference | None]
"""Finds where two rotations part."""


def compare(first: Positions, second: Positions, length: int | None = None) -> Difference | None:
    """Return the first difference between two configurations; None if every layer means the same.

    ``length``: of the text in tokens, where frequencies depend on it; otherwise short texts are compared, and such of
    the longer claimed length.
    """
    if len(first.layers) != len(second.layers):
        what = f"{len(first.layers)} layers against {len(second.layers)}"
        return Difference(what, min(len(first.layers), len(second.layers)))
    if any(positions.entry.startswith(NOT_KNOWN) for positions in (first, second)):
        return _compare_entries(first, second)
    claimed = max(first.claimed_length or 0, second.claimed_length or 0)
    lengths: list[int | None] = [length] if length else [None, claimed or None]
    # Converters to GGUF and from Mistral's files reorder the weights, so that another pairing means the same there.
    formats = {p.program if p.program in OWN_FILES else "config.json" for p in (first, second)}
    tolerance = EQUAL_IN_FLOAT32 if "llama.cpp" in formats else EQUAL

    def part(a: Rotation, b: Rotation) -> Difference | None:
        return _compare_rotations(a, b, lengths, tolerance, same_format=len(formats) == 1)

    differences: dict[int, Difference] = {}
    for index, (here, there) in enumerate(zip(first.layers, second.layers, strict=True)):
        if (difference := _compare_layers(here, there, part)) is not None:
            differences[index] = dataclasses.replace(difference, layer=index, kind=here.kind)
    if not differences:
        return _compare_entries(first, second)
    return dataclasses.replace(next(iter(differences.values())), layers=tuple(differences))


def _compare_entries(first: Positions, second: Positions) -> Difference | None:
    """Return that positions enter, not by rotation, and not alike or not as far; or that strange keys differ."""
    both = [positions.entry or "rotation alone" for positions in (first, second)]
    # The weights tell what one program names, and each has words of its own for no rotation at all.
    still = all(side.startswith("no rotation") for side in both)
    same = still and (any("the weights tell" in side for side in both) or all("rotation (" in side for side in both))
    same |= all("ALiBi" in side for side in both)
    if both[0] != both[1] and not same:
        return Difference(f"positions enter by {both[0]} against {both[1]}")
    if first.entry and both[0] == both[1] and first.claimed_length != second.claimed_length:
        cause = ("claimed length", _format_side(first.claimed_length), _format_side(second.claimed_length))
        return Difference("the lengths of what is added for positions differ", causes=(cause,))
    ours, theirs = [
        {key.split("rope_parameters.")[-1].split("rope_scaling.")[-1]: value for key, value in positions.strange}
        for positions in (first, second)
    ]
    causes = []
    for key in dict.fromkeys((*ours, *theirs)):
        # What one file leaves out, and what it says in other words, is what transformers' class makes of it.
        filled = [look_up(positions.config, key) for positions in (first, second)]
        if ours.get(key) != theirs.get(key) and (filled[0] is None or filled[0] != filled[1]):
            causes.append((key, ours.get(key, "not set"), theirs.get(key, "not set")))
    if not causes:
        return None
    what = "no layer differs by what is understood, but keys differ that are not"
    return Difference(what, causes=tuple(causes))


def _compare_layers(here: Layer, there: Layer, part: Part) -> Difference | None:
    """Return where two layers part: in whether or how they rotate, or in how far they see."""
    a, b = here.rotation, there.rotation
    if here.attends != there.attends:
        has = ("no softmax attention", "softmax attention")
        return Difference(f"the layer has {has[here.attends]} against {has[there.attends]}")
    if (a is None) != (b is None):
        rotates = ("does not rotate", "rotates")
        return Difference(f"the layer {rotates[a is not None]} against {rotates[b is not None]}")
    if a is not None and b is not None and (difference := part(a, b)) is not None:
        causes = _find_causes(a, b, part)
        return dataclasses.replace(difference, causes=causes)
    for name, unit in (("window", " tokens of window"), ("chunk", " tokens of a chunk"), ("temperature", "")):
        left, right = (_format_side(getattr(layer, name)) for layer in (here, there))
        if left != right:
            return Difference(f"{left}{unit} against {right}", causes=((name, left, right),))
    return None


def _format_side(value: object) -> str:
    return "none" if value in (None, "") else f"{value:,}" if isinstance(value, int) else str(value)


def _compare_rotations(
    a: Rotation, b: Rotation, lengths: list[int | None], tolerance: float, *, same_format: bool
) -> Difference | None:
    """Return where two rotations part, on texts of any of some lengths; without the causes."""

    def differ(left: float, right: float) -> bool:
        # By more than the rounding of the files: llama.cpp has 1e-30 for pairs at rest.
        return abs(left - right) > max(tolerance * max(abs(left), abs(right)), 1e-20)

    for length in lengths:
        left, right = a.frequencies(length), b.frequencies(length)
        pairs = enumerate(zip(left, right, strict=False))
        channel = next((pair for pair, two in pairs if differ(*two)), None)
        what = ""
        if len(left) != len(right):
            what = f"{len(left)} pairs of channels rotate against {len(right)}"
            channel = min(len(left), len(right)) if channel is None else channel
        elif channel is not None:
            what = f"pair {channel} rotates by {left[channel]:.6g} against {right[channel]:.6g} radians per token"
        if channel is not None:
            errors = {distance: compute_largest_error(left, right, distance) for distance in DISTANCES}
            both = (left[channel], right[channel]) if channel < min(len(left), len(right)) else None
            return Difference(what, channel=channel, frequencies=both, errors=errors)
    if same_format and (a.pairing != b.pairing or a.direction != b.direction):
        senses = [f"{r.pairing}{'' if r.direction == 1 else ', in the opposite sense'}" for r in (a, b)]
        return Difference(f"channels are paired as {senses[0]} against {senses[1]}")
    scales = [rotation.logit_scale for rotation in (a, b)]
    if differ(*scales):
        return Difference(f"logits are multiplied by {scales[0]:.4f} against {scales[1]:.4f}")
    return None


def compute_largest_error(left: list[float], right: list[float], distance: int) -> float:
    """Return the largest difference of two angles at a distance, in radians; a whole turn is none, so at most π."""
    error = 0.0
    for a, b in zip(left, right, strict=False):
        rest = abs(a - b) * distance % (2 * math.pi)
        error = max(error, min(rest, 2 * math.pi - rest))
    return error


def _find_causes(a: Rotation, b: Rotation, part: Part) -> tuple[tuple[str, str, str], ...]:
    """Return the fields that make two rotations differ.

    A field that alone accounts for everything is told alone; otherwise all whose exchange changes something. Where the
    rules differ, the rule is one field with all that only it reads.
    """
    groups = {name: [name] for name in FIELDS if name not in OF_A_RULE or a.rule == b.rule}
    if a.rule != b.rule:
        groups["rule"] = [*OF_A_RULE]
    different, alone, with_effect = [], [], []
    for name, group in groups.items():
        if all(getattr(a, field) == getattr(b, field) for field in group):
            continue
        swapped = dataclasses.replace(b, **{field: getattr(a, field) for field in group})
        different.append(name)
        alone += [name] if part(swapped, a) is None else []
        with_effect += [name] if part(swapped, b) is not None else []

    def show(rotation: Rotation, name: str) -> str:
        value, origin = getattr(rotation, name), rotation.origin.get(name)
        if isinstance(value, tuple):
            value = f"a list of {len(value)}"
        shown = f"{value:,.6g}" if isinstance(value, float) else f"{value}"
        return f"{shown} ({origin})" if origin else shown

    named = alone[:1] or with_effect or different
    return tuple((name, show(a, name), show(b, name)) for name in named)
