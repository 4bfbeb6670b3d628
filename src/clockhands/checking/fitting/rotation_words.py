"""Say how queries or keys rotate otherwise than the reference's, and find the maps that undo it.

Layout, share, base, scaling, direction, positions, length and order of channels have words.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.fitting.compare import find_ratio, list_numbers
from clockhands.checking.fitting.rotation import (
    LAYOUT_WORDS,
    Rotation,
    find_base,
    find_pairs,
    fit_rotation,
    multiply_by_place,
    same_angles,
)
from clockhands.checking.fitting.words import describe_places


@dataclass(frozen=True)
class Settings:
    """What is known of a reference's rotation: its attention factors, and the rules of its configuration."""

    scalings: list[float]
    rules: list[dict[str, Any]]
    config: Any


def read_settings(module: Any) -> Settings:
    """Read the attention factors of a module's parts, and the rotary settings of a configuration of transformers."""
    values = {value for part in module.modules() for name, value in vars(part).items() if name == "attention_scaling"}
    scalings = sorted(float(value) for value in values if isinstance(value, (int, float)) and value not in (0, 1))
    config: Any = getattr(module, "config", None)
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
    rope = getattr(config, "rope_parameters", None) or {}
    rules = [rope] if "rope_theta" in rope else [rule for rule in rope.values() if isinstance(rule, dict)]
    return Settings(scalings, rules, config)


def compare_rotations(
    mine_NSK: Tensor, wanted_NSK: Tensor, settings: Settings
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
        if float(gaps.max()) >= 1e-4 * float(plain_NK.abs().max()) or len(order.unique()) < len(order):
            return None
        ours = fit_rotation(mine_NSK[..., order], plain_NK)
    if ours is not None:
        undo, said = torch.linalg.inv(ours.matrices() / ours.gain)[..., order.argsort()], []
    else:  # no rotation of the reference's pairs: one of its own, in channels of another order
        ours, said = fit_rotation(mine_NSK), ["rotates queries and keys whose channels stand in another order"]
        if ours is None:
            return None
        undo = torch.linalg.inv(ours.matrices())[:, order]
    words = _describe(ours, theirs, settings)
    if words is None:
        return None
    offset = 0
    if ours.count and ours.layout == theirs.layout and ours.first_SC.shape == theirs.first_SC.shape:
        speeds, ahead = theirs.speeds_C, ours.first_SC[:1] - theirs.first_SC[:1]
        offset = next((by for by in sorted(range(-64, 65), key=abs) if same_angles(ahead, by * speeds[None])), 0)
    return [*said, *words], theirs.matrices() @ undo, offset


def _describe(ours: Rotation, theirs: Rotation, settings: Settings) -> list[str] | None:
    """Return what differs, each as a sentence about the model; None if the rotation has no description.

    Both turn the same vectors, so that layout and length can be compared.
    """
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
    if same_angles(mine, -wanted) and not same_angles(mine, wanted):
        said.append("rotates the other way")
    elif not same_angles(mine, wanted) and ours.keeps(ours.speeds_C):
        said += _describe_speeds(ours, theirs, settings)
    elif not same_angles(mine, wanted):
        rows = ((mine[:, None] - wanted[None]) / 2).sin().abs().amax(-1).argmin(1)  # whole turns aside
        if not same_angles(mine, wanted[rows]):
            return None
        said.append(describe_places({"meant": torch.arange(len(rows)), "stood": rows}))
    length = find_ratio(ours.amplitude_C, torch.ones_like(ours.amplitude_C), 2e-3)
    if length is None:
        return None
    lacked = next((scaling for scaling in settings.scalings if abs(length * scaling - 1) < 1e-3), None)
    if abs(length - 1) >= 1e-4 and lacked:
        said.append(f"lacks the attention factor {lacked:.4g} (YaRN's temperature)")
    elif abs(length - 1) >= 1e-4:
        said.append(f"makes what it rotates {length:.4g} times as long")
    return said


def _describe_mixture(ours: Rotation, theirs: Rotation) -> str:
    """Of a map that is no rotation: both members of a pair turn by angles of other pairs, or one sign is wrong."""
    by_channel = torch.empty(len(ours.first_SC), ours.count, dtype=torch.float64, device=ours.first_SC.device)
    a, b = find_pairs(0, ours.count, ours.layout)
    by_channel[:, a], by_channel[:, b] = ours.first_SC, ours.second_SC
    for layout in LAYOUT_WORDS:
        first, second = find_pairs(0, ours.count, layout)
        pair_of = torch.empty(ours.count, dtype=torch.long)
        pair_of[first] = pair_of[second] = torch.arange(ours.count // 2)
        if same_angles(by_channel, theirs.first_SC[:, pair_of]):
            return f"lays angles out in {LAYOUT_WORDS[layout]} and rotates {LAYOUT_WORDS[ours.layout]}"
    for sign, member in ((-1, "first"), (1, "second")):
        if same_angles(ours.first_SC, sign * theirs.first_SC) and same_angles(ours.second_SC, -sign * theirs.second_SC):
            return f"has the sign of the {member} member of each pair wrong, which is no rotation"
    return ""


def _describe_speeds(ours: Rotation, theirs: Rotation, settings: Settings) -> list[str]:
    """Other frequencies: by base and factor where they are powers, by the reference's rule, else all of them."""
    mine, wanted = _find_power(ours), _find_power(theirs)
    if mine and wanted:
        said = [] if mine[0] == wanted[0] else [f"has base {_number(mine[0])}, not {_number(wanted[0])}"]
        if abs(mine[1] / wanted[1] - 1) > 1e-3:
            divided = f"divides positions by {mine[1]:.4g}, not by {wanted[1]:.4g}"
            said.append(f"does not divide positions by {wanted[1]:.4g}" if abs(mine[1] - 1) < 1e-3 else divided)
        return said
    slowest, share = float(ours.speeds_C[-1]), (len(ours.speeds_C) - 1) / len(ours.speeds_C)
    for rule in settings.rules:
        kind, theta, factor = str(rule.get("rope_type")), float(rule.get("rope_theta") or 0), rule.get("factor")
        if not _follows(theirs, rule, settings):
            continue
        if mine and abs(mine[1] - 1) < 1e-3:
            base = [] if abs(mine[0] / theta - 1) < 1e-3 else [f"has base {_number(mine[0])}, not {_number(theta)}"]
            return [*base, f"leaves out the scaling {kind!r} of the reference"]
        if slowest <= 0 or not theta or not isinstance(factor, (int, float)):
            continue
        # Rules divide the slowest pair by the whole factor: by which factor, or base, would it be what it is?
        value = float(f"{theta**-share / slowest:.4g}")
        if _follows(ours, {**rule, "factor": value}, settings):
            return [f"has factor {_number(value)}, not {_number(factor)} in its scaling {kind!r}"]
        value = float(f"{(slowest * factor) ** (-1 / share):.4g}")
        if _follows(ours, {**rule, "rope_theta": value}, settings):
            return [f"has base {_number(value)}, not {_number(theta)}"]
    mine_words, their_words = (list_numbers(x.speeds_C, digits=3) for x in (ours, theirs))
    return [f"rotates its pairs by {mine_words} a position, the reference by {their_words}"]


def _follows(rotation: Rotation, rule: dict[str, Any], settings: Settings) -> bool:
    """Whether frequencies are those of a rule of transformers with these settings."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = copy.deepcopy(settings.config)
    config.rope_parameters = dict(rule)
    try:
        make = ROPE_INIT_FUNCTIONS[str(rule.get("rope_type"))]
        speeds = make(config, torch.device("cpu"), seq_len=len(rotation.first_SC))[0].to(rotation.first_SC)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return speeds.shape == rotation.speeds_C.shape and rotation.keeps(speeds)


def _find_power(rotation: Rotation) -> tuple[float, float] | None:
    """Base and factor of frequencies that are powers of a base, divided by one factor."""
    if bool((rotation.speeds_C <= 0).any()):
        return None
    factor = 1 / float(rotation.speeds_C[0])
    factor = round(factor, 3) if abs(factor - round(factor, 3)) < 1e-4 * factor else factor
    speeds = rotation.speeds_C * factor
    angles = rotation.rotated_SC if factor == 1 else multiply_by_place(speeds, len(rotation.first_SC))
    base = find_base(speeds, angles)
    return None if base is None else (base, factor)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 and value == int(value) else f"{value:.4g}"
