"""What llama.cpp is told of positions: the settings of a GGUF file as its converter writes them, and its flags."""

from __future__ import annotations

import dataclasses
from typing import Any

from clockhands.errors import CheckpointError
from clockhands.explanation.gguf import FACTORS
from clockhands.explanation.llama_cpp import (
    BETAS,
    NAMES,
    RECURRENT,
    find_architecture,
    load_llama_facts,
    parse_flags,
    read_settings,
)
from clockhands.explanation.rotation import temperature_of
from clockhands.explanation.table import Layer, Positions


def list_settings(positions: Positions, model: str) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
    """Return what a GGUF file of the architecture ``model`` says of positions: its settings, and lists of factors.

    As llama.cpp's converter writes them; a list for Llama 3's rule. Raises CheckpointError for a rule that llama.cpp
    does not have, and for more kinds of rotations than one of layers with a window and one of the others.
    """
    whole = [layer.rotation for layer in positions.layers if layer.rotation and not (layer.window or layer.chunk)]
    local = [layer.rotation for layer in positions.layers if layer.rotation and (layer.window or layer.chunk)]
    if max(len(set(whole)), len(set(local))) > 1:
        raise CheckpointError("llama.cpp has one rotation for layers with a window, and one for all others")
    rotation = (whole or local)[0]
    entries: dict[str, Any] = {"context_length": positions.claimed_length} if positions.claimed_length else {}
    entries |= {"block_count": len(positions.layers), "attention.key_length": rotation.head_dim}
    if rotation.rule in ("dynamic", "proportional") or not rotation.truncate:
        lacks = f"has no rule {rotation.rule!r}" if rotation.truncate else "always rounds the bounds of YaRN"
        raise CheckpointError(f"llama.cpp {lacks}")
    yarn = rotation.rule == "yarn"
    fields = ["base", "channels", *(["rule", "factor"] if rotation.rule in ("linear", "yarn") else [])]
    if yarn:
        fields += ["original_length", *(name for name, usual in BETAS.items() if getattr(rotation, name) != usual)]
        fields += ["extrapolation"] if rotation.extrapolation != 1 else []
    entries |= {NAMES[name]: getattr(rotation, name) for name in fields if getattr(rotation, name) is not None}
    beside = rotation.amplitude / (temperature_of(rotation.factor, 1.0) if yarn else 1.0)
    entries |= {NAMES["amplitude"]: beside} if abs(beside - 1) > 1e-9 else {}
    attends = [int(layer.attends) for layer in positions.layers]
    every = load_llama_facts()["attention_every"].get(model)
    if every is None and not all(attends):
        entries["attention.head_count_kv"] = attends
    elif every and attends != [int((layer + 1) % every == 0) for layer in range(len(attends))]:
        entries[RECURRENT] = [not number for number in attends]
    windows = [layer.window for layer in positions.layers]
    if any(windows):
        size = max(filter(None, windows))
        two_sided = load_llama_facts()["windows"].get(model, {}).get("both_sides")
        entries["attention.sliding_window"] = 2 * (size - 1) if two_sided else size
        if not all(windows):
            entries["attention.sliding_window_pattern"] = [bool(window) for window in windows]
    if whole and local and local[0] != rotation:
        entries["rope.freq_base_swa"] = local[0].base
        for name, key in (("channels", "rope.dimension_count_swa"), ("head_dim", "attention.key_length_swa")):
            if getattr(local[0], name) != getattr(rotation, name):
                entries[key] = getattr(local[0], name)
    factors = rotation.factors
    if rotation.rule == "llama3":
        plain = dataclasses.replace(rotation, rule="default").frequencies()
        factors = tuple(a / b for a, b in zip(plain, rotation.frequencies(), strict=True))
    tensors = {FACTORS[1] if rotation.long_factors else FACTORS[0]: factors, FACTORS[2]: rotation.long_factors}
    named = {f"{model}.{key}": value for key, value in entries.items()}
    return {"general.architecture": model, **named}, tensors


def apply_llama_flags(positions: Positions, text: str) -> Positions:
    """Return what llama.cpp makes of a converted ``config.json`` with its flags ``--rope-*`` and ``--yarn-*``.

    A number that is not given is the file's own. Raises UsageError for a flag that is not of this kind, CheckpointError
    for a rule that llama.cpp does not have.
    """
    model = find_architecture(positions.model) or "llama"
    _, flagged = parse_flags(text, model)
    if not positions.rotations():
        return dataclasses.replace(positions, source=f"{positions.source} {text}", program="llama.cpp")
    values, tensors = list_settings(positions, model)
    read = read_settings(values, tensors, positions.source, text)

    def restore(layer: Layer, before: Layer) -> Layer:
        # Converters reorder weights to the pairs of llama.cpp, and the first file tells where numbers come from.
        if not before.attends:
            return before
        if layer.rotation is None or before.rotation is None:
            return layer
        kept = {name: place for name, place in before.rotation.origin.items() if name not in (*flagged, "amplitude")}
        if layer.rotation.rule == "yarn" != before.rotation.rule:
            kept["original_length"] = "the trained length"
        rotation = layer.rotation.change(kept, pairing=before.rotation.pairing, direction=before.rotation.direction)
        return dataclasses.replace(layer, rotation=rotation)

    layers = map(restore, read.layers, positions.layers)
    return dataclasses.replace(read, layers=tuple(layers), model=positions.model)
