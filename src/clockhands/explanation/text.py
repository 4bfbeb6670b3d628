"""Tells a position configuration in words and numbers, where two of them part, and what is known to go wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from clockhands.explanation.difference import Difference
from clockhands.explanation.rotation import Rotation
from clockhands.explanation.table import NOT_KNOWN, Layer, Positions

SHOWN = (
    "head_dim", "channels", "base", "rule", "factor", "original_length", "pairing", "direction", "amplitude",
    "logit_factor",
)  # fmt: skip
"""Numbers of a rotation as plain data has them, before its frequencies."""


def describe(positions: Positions, length: int | None = None) -> str:
    """Return the configuration as lines of text: each kind of layer, its hands, and what is known to go wrong."""
    lines = [f"{positions.source}: {positions.model or 'a model'} as {positions.program} reads it"]
    claimed, trained = positions.claimed_length, positions.trained_length
    if claimed:
        trained_text = f", trained with {trained:,}" if trained and trained != claimed else ""
        lines.append(f"claims {claimed:,} tokens{trained_text}")
    if positions.entry:
        lines.append(f"positions: {positions.entry}")
    for numbers, layer in positions.groups():
        lines += ["", *_describe_layer(numbers, layer, positions, length)]
    for title, sentences in (("note", positions.notes), ("warning", list_warnings(positions))):
        lines += [""] * bool(sentences) + [f"{title}: {sentence}" for sentence in sentences]
    return "\n".join(lines)


def _describe_layer(numbers: list[int], layer: Layer, positions: Positions, length: int | None) -> Iterator[str]:
    count = f"layer {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} layers ({name_layers(numbers)})"
    reach = f", chunks of {layer.chunk:,}" if layer.chunk else ""
    reach = f", {layer.window:,} tokens of window" if layer.window else reach
    yield f"{count}, {layer.kind}{reach}"
    if layer.temperature:
        yield f"  {layer.temperature}"
    rotation = layer.rotation
    if rotation is None:
        still = "how it rotates is not known" if positions.entry.startswith(NOT_KNOWN) else "rotates nothing"
        yield f"  {still}" if layer.attends else "  has no softmax attention"
        return
    part = "all" if rotation.channels == rotation.head_dim else f"{rotation.channels} of"
    sense = "" if rotation.direction == 1 else ", in the opposite sense"
    yield f"  rotates {part} {rotation.head_dim} channels of a head, paired as {rotation.pairing}{sense}"
    yield f"  base {rotation.base:,.10g} ({rotation.origin.get('base', 'given')})"
    if rotation.rule != "default":
        factor = f", factor {rotation.factor:g}" if rotation.rule != "longrope" else ""
        original = f", original length {rotation.original_length:,}" if rotation.original_length else ""
        yield f"  rule {rotation.rule}{factor}{original} ({rotation.origin.get('rule', 'given')})"
    if rotation.factors and rotation.rule != "longrope":
        origin = rotation.origin.get("factors", "given")
        yield f"  plain frequencies divided by a list of {len(rotation.factors)} ({origin})"
    if rotation.amplitude != 1.0 or rotation.rule in ("yarn", "longrope"):
        yield f"  cosines and sines × {rotation.amplitude:.4f} ({rotation.origin.get('amplitude', 'the rule')})"
    if rotation.logit_scale != 1.0:
        yield f"  so logits × {rotation.logit_scale:.4f}"
    yield from _describe_hands(rotation, positions.trained_length, length)


def _describe_hands(rotation: Rotation, trained: int | None, length: int | None) -> Iterator[str]:
    """Tell the hands: how fast, how many turns within the trained length, which never come round."""
    frequencies = rotation.frequencies(length)
    moving = [omega for omega in frequencies if omega > 0]
    if not moving:
        yield f"  no hand moves: all {len(frequencies)} pairs stand still"
        return
    fastest, slowest = max(moving), min(moving)
    yield (
        f"  {len(moving)} hands, from {2 * math.pi / fastest:,.1f} to {2 * math.pi / slowest:,.0f} tokens a turn"
        + (f"; {len(frequencies) - len(moving)} pairs stand still" if len(moving) < len(frequencies) else "")
    )
    if trained:
        rounds = [trained * omega / (2 * math.pi) for omega in moving]
        open_hands = sum(count < 1 for count in rounds)
        yield (
            f"  within {trained:,} tokens the fastest turns {max(rounds):,.0f} times, the slowest {min(rounds):.3g} "
            f"times; {open_hands} of {len(moving)} never come round"
        )
    # From 2^8 on bfloat16 holds every second whole number alone, float16 from 2^11 on.
    first = 2**8 / fastest
    wrong = "an angle of the fastest hand made in bfloat16 can be wrong by 1 radian from position"
    late = f"; {wrong} {int(first) + 1:,} on" if math.isfinite(first) else ""
    yield f"  positions are exact to {2**8:,} tokens in bfloat16, {2**11:,} in float16{late}"


def describe_difference(difference: Difference | None, first: Positions, second: Positions) -> str:
    """Return where two configurations part, in words; "the same" if nowhere."""
    names = f"A: {first.source} ({first.program})\nB: {second.source} ({second.program})"
    if difference is None:
        return f"{names}\nthe same: every layer rotates by the same angles, with the same amplitude, and sees as far"
    if difference.layer is None:
        keys = [f"  {name}: {here} against {there}" for name, here, there in difference.causes]
        return "\n".join([names, f"not known to be the same: {difference.what} (A against B)", *keys])
    lines = [names, f"they part in layer {difference.layer}" + (f", {difference.kind}" if difference.kind else "")]
    if len(difference.layers) > 1:
        lines[-1] += f", and {len(difference.layers)} of {len(first.layers)} layers differ"
    lines.append(f"  {difference.what} (A against B)")
    if difference.errors:
        shown = ", ".join(f"{error:.3g} at {distance:,}" for distance, error in difference.errors.items())
        lines.append(f"  largest error of an angle, in radians, by distance in tokens: {shown}")
    for name, here, there in difference.causes:
        lines.append(f"  because of {name}: {here} against {there}")
    return "\n".join(lines)


def to_json(positions: Positions, length: int | None = None) -> dict[str, Any]:
    """Return the table: each kind of layer with its numbers, frequencies in radians per token."""
    layers = []
    for numbers, layer in positions.groups():
        reach = {name: getattr(layer, name) for name in ("kind", "attends", "window", "chunk", "temperature")}
        rotation = None
        if layer.rotation is not None:
            rotation = {name: getattr(layer.rotation, name) for name in SHOWN}
            rotation |= {"frequencies": layer.rotation.frequencies(length), "origin": layer.rotation.origin}
        layers.append({"layers": numbers, **reach, "rotation": rotation})
    shown = ("source", "program", "model", "entry", "trained_length", "claimed_length")
    return {
        **{name: getattr(positions, name) for name in shown},
        "layers": layers,
        "warnings": list_warnings(positions),
        "notes": list(positions.notes),
        "not_understood": dict(positions.strange),
    }


def list_warnings(positions: Positions) -> list[str]:
    """Return one sentence for each known way in which this configuration is misread or contradicts itself."""
    sentences = [
        f"{key} is set, but changes nothing here as {positions.program} reads the file" for key in positions.unread
    ]
    sentences += [f"{key} = {value} looks like position, and is not understood" for key, value in positions.strange]
    rotations = positions.rotations()
    for rotation in rotations:
        sentences += _warn_of_rotation(rotation, positions)
    if len(rotations) > 1 and len({(r.rule, r.factor) for r in rotations}) > 1:
        rules = ", ".join(sorted({f"{r.rule} (factor {r.factor:g})" for r in rotations}))
        lost = "a program with one table for all loses one of them"
        sentences.append(f"kinds of layers are scaled differently ({rules}); {lost}")
    elif len({r.base for r in rotations}) > 1:
        bases = ", ".join(f"{base:,.10g}" for base in sorted({r.base for r in rotations}))
        lost = "a program with one base for all loses one of them"
        sentences.append(f"kinds of layers have different bases ({bases}); {lost}")
    still = [index for index, layer in enumerate(positions.layers) if layer.attends and layer.rotation is None]
    if rotations and still:
        names = name_layers(still)
        sentences.append(
            f"{len(still)} attention layers do not rotate ({names}); a program that rotates all differs there"
        )
    return list(dict.fromkeys(sentences))


def _warn_of_rotation(rotation: Rotation, positions: Positions) -> Iterator[str]:
    origin, claimed = rotation.origin, positions.claimed_length
    if origin.get("base", "").startswith("default"):
        yield (
            f"the base is not in the file: {positions.program} takes {rotation.base:,.10g} ({origin['base']}); a "
            "program with another default gets other angles"
        )
    if rotation.rule in ("yarn", "llama3", "longrope") and origin.get("original_length") == "max_position_embeddings":
        yield (
            f"original_max_position_embeddings is not set: {positions.program} takes max_position_embeddings "
            f"({rotation.original_length:,}); the trained length is probably that divided by {rotation.factor:g}"
        )
    if rotation.rule == "yarn" and rotation.original_length and claimed:
        implied = claimed / rotation.original_length
        if implied != 1 and abs(implied - rotation.factor) > 1e-6 * implied:
            yield (
                f"factor is {rotation.factor:g} ({origin.get('factor')}), but the claimed length / "
                f"original length is {implied:g}; {positions.program} uses factor"
            )
    if "mscale" in origin.get("amplitude", "") and rotation.rule == "yarn" and rotation.logit_factor == 1.0:
        yield (
            f"YaRN's amplitude is {rotation.amplitude:.4g} because of mscale and mscale_all_dim; a program that "
            f"ignores them (vLLM before its pull request 48623) takes 0.1 ln(factor) + 1"
        )
    if rotation.rule == "proportional":
        yield (
            f"the rule is proportional: the {rotation.pairs - int(rotation.share * rotation.channels // 2)} slowest of "
            f"{rotation.pairs} pairs stand still, and the others keep the frequencies of the whole width; read as "
            "partial rotation, every frequency but the first would be another"
        )


def name_layers(numbers: list[int]) -> str:
    """Return layer numbers as text: "0 to 3, 8", or with their step, "3, 7, … 35", where they have one."""
    steps = {b - a for a, b in itertools.pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]}, … {numbers[-1]}"
    runs: list[list[int]] = []
    for index in numbers:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(parts[:4]) + (f" and {len(runs) - 4} more runs" if len(runs) > 4 else "")
