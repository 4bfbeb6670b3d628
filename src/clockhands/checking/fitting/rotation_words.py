"""Say how queries or keys rotate otherwise than the reference's, and find the maps that undo it.

Layout, share, base, scaling, direction, positions, length and order of channels have words.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clockhands.checking.fitting.rotation import (
    CHANNEL_LAYOUTS,
    Rotation,
    find_base,
    find_pairs,
    fit_rotation,
    same_angles,
)
from clockhands.checking.fitting.words import describe_places

_LAYOUT_WORDS = {"halves": "halves", "pairs": "neighbouring pairs"}
_SIGNS = ((-1, 1, "first"), (1, -1, "second"))


@dataclass(frozen=True)
class Settings:
    """What is known of a reference's rotation: its attention factors, and the rules of its configuration."""

    scalings: tuple[float, ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    config: Any = None


def read_settings(module: Any) -> Settings:
    """Read the attention factors of a module's parts, and the rotary settings of a configuration of transformers."""
    values = {value for part in module.modules() for name, value in vars(part).items() if name == "attention_scaling"}
    scalings = sorted(float(value) for value in values if isinstance(value, (int, float)) and value not in (0, 1))
    config: Any = getattr(module, "config", None)
    config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
    rope = getattr(config, "rope_parameters", None) or {}
    rules = [rope] if "rope_theta" in rope else [rule for rule in rope.values() if isinstance(rule, dict)]
    return Settings(tuple(scalings), tuple(rules), config)


@dataclass(frozen=True)
class RotationDifference:
    """How queries or keys differ: in words, by the maps [S, K, K] that undo it, and by how many positions ahead."""

    words: list[str]
    undo: Tensor
    ahead: float


def compare_rotations(mine_NSK: Tensor, wanted_NSK: Tensor, settings: Settings) -> RotationDifference | None:
    """Compare how queries or keys turn; None where the turn of either cannot be fitted or said."""
    plain_NK = wanted_NSK[:, 0]
    theirs, ours = fit_rotation(wanted_NSK), fit_rotation(mine_NSK, plain_NK)
    order: Tensor | None = torch.arange(mine_NSK.shape[-1], device=mine_NSK.device)
    if theirs is not None and ours is None:
        order = _find_order(mine_NSK[:, 0], plain_NK)
        ours = None if order is None else fit_rotation(mine_NSK[..., order], plain_NK)
    if theirs is None or order is None:
        return None
    if ours is None:  # no rotation of the reference's pairs: one of its own, in channels of another order
        ours, said = fit_rotation(mine_NSK), ["rotates queries and keys whose channels stand in another order"]
        undo = None if ours is None else torch.linalg.inv(ours.matrices())[:, order]
    else:
        undo, said = torch.linalg.inv(ours.matrices() / ours.gain)[..., order.argsort()], []
    words = None if ours is None else _describe(ours, theirs, settings)
    if ours is None or undo is None or words is None:
        return None
    return RotationDifference([*said, *words], theirs.matrices() @ undo, _find_offset(ours, theirs))


def _find_order(mine_NK: Tensor, wanted_NK: Tensor) -> Tensor | None:
    """Return the channels of ours in the order of the reference's: of a model whose weights are laid out otherwise."""
    gaps = (mine_NK[:, :, None] - wanted_NK[:, None, :]).abs().amax(0)
    order = gaps.argmin(0)
    exact = float(gaps.amin(0).max()) < 1e-4 * float(wanted_NK.abs().max())
    return order if exact and len(set(order.tolist())) == len(order) else None


def _find_offset(ours: Rotation, theirs: Rotation) -> float:
    """Return by how many positions the angles at place 0 are ahead of the reference's; 0 if by none."""
    if not ours.count or ours.layout != theirs.layout or ours.first_SC.shape != theirs.first_SC.shape:
        return 0.0
    speeds, ahead = theirs.speeds_C, ours.first_SC[:1] - theirs.first_SC[:1]
    offsets = (by for by in sorted(range(-64, 65), key=abs) if same_angles(ahead, by * speeds[None]))
    return float(next(offsets, 0))


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
        said.append(f"rotates {_LAYOUT_WORDS[ours.layout]}, the reference {_LAYOUT_WORDS[theirs.layout]}")
    if not ours.is_rotation:
        mixed = _describe_mixture(ours, theirs) if ours.count == theirs.count else ""
        return [*said, mixed] if mixed else None
    angles, length = _describe_angles(ours, theirs, settings), _describe_length(ours, settings.scalings)
    return None if angles is None or length is None else [*said, *angles, *length]


def _describe_mixture(ours: Rotation, theirs: Rotation) -> str:
    """Of a map that is no rotation: both members of a pair turn by angles of other pairs, or one sign is wrong."""
    half = ours.count // 2
    by_channel = torch.empty(len(ours.first_SC), ours.count, dtype=torch.float64, device=ours.first_SC.device)
    a, b = (item - ours.start for item in ours.channels)
    by_channel[:, a], by_channel[:, b] = ours.first_SC, ours.second_SC
    for layout in CHANNEL_LAYOUTS:
        first, second = find_pairs(0, ours.count, layout)
        laid_out = torch.empty(ours.count, dtype=torch.long)
        laid_out[first], laid_out[second] = torch.arange(half), torch.arange(half)
        if same_angles(by_channel, theirs.first_SC[:, laid_out]):
            return f"lays angles out in {_LAYOUT_WORDS[layout]} and rotates {_LAYOUT_WORDS[ours.layout]}"
    for first_sign, second_sign, member in _SIGNS:
        if same_angles(ours.first_SC, first_sign * theirs.first_SC) and same_angles(
            ours.second_SC, second_sign * theirs.second_SC
        ):
            return f"has the sign of the {member} member of each pair wrong, which is no rotation"
    return ""


def _describe_angles(ours: Rotation, theirs: Rotation, settings: Settings) -> list[str] | None:
    mine, wanted = ours.rotated_SC, theirs.rotated_SC
    if same_angles(mine, wanted):
        return []
    if same_angles(mine, -wanted):
        return ["rotates the other way"]
    if ours.keeps(ours.speeds_C):
        return _describe_speeds(ours, theirs, settings)
    rows = ((mine[:, None] - wanted[None]) / 2).sin().abs().amax(-1).argmin(1)  # whole turns aside
    if not same_angles(mine, wanted[rows]):
        return None
    return [describe_places({"meant": torch.arange(len(rows)), "stood": rows})]


def _describe_speeds(ours: Rotation, theirs: Rotation, settings: Settings) -> list[str]:
    """Other frequencies: by base and factor where they are powers, by the reference's rule, else all of them."""
    mine, wanted = _find_power(ours), _find_power(theirs)
    if mine and wanted:
        said = [] if mine[0] == wanted[0] else [f"has base {_number(mine[0])}, not {_number(wanted[0])}"]
        if abs(mine[1] / wanted[1] - 1) > 1e-3:
            plain = abs(mine[1] - 1) < 1e-3
            said += [
                f"does not divide positions by {wanted[1]:.4g}" if plain
                else f"divides positions by {mine[1]:.4g}, not by {wanted[1]:.4g}"
            ]  # fmt: skip
        return said
    for rule in settings.rules:
        kind, theta = str(rule.get("rope_type")), float(rule.get("rope_theta") or 0)
        if not _follows(theirs, rule, settings):
            continue
        if mine and abs(mine[1] - 1) < 1e-3:
            base = [] if abs(mine[0] / theta - 1) < 1e-3 else [f"has base {_number(mine[0])}, not {_number(theta)}"]
            return [*base, f"leaves out the scaling {kind!r} of the reference"]
        for name, value in _solve_rule(ours, rule):
            value = float(f"{value:.4g}")
            if _follows(ours, {**rule, name: value}, settings):
                rest = "" if name == "rope_theta" else f" in its scaling {kind!r}"
                label = "base" if name == "rope_theta" else name
                return [f"has {label} {_number(value)}, not {_number(rule[name])}{rest}"]
    return [f"rotates its pairs by {_list(ours.speeds_C)} a position, the reference by {_list(theirs.speeds_C)}"]


def _solve_rule(ours: Rotation, rule: dict[str, Any]) -> list[tuple[str, float]]:
    """The factor, or the base, by which the slowest pair would be what it is: rules divide that by the whole factor."""
    slowest, share = float(ours.speeds_C[-1]), (len(ours.speeds_C) - 1) / len(ours.speeds_C)
    theta, factor = float(rule.get("rope_theta") or 0), rule.get("factor")
    if slowest <= 0 or not theta or not isinstance(factor, (int, float)):
        return []
    return [("factor", theta**-share / slowest), ("rope_theta", (slowest * factor) ** (-1 / share))]


def _follows(rotation: Rotation, rule: dict[str, Any], settings: Settings) -> bool:
    """Whether frequencies are those of a rule of transformers with these settings."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    make = ROPE_INIT_FUNCTIONS.get(str(rule.get("rope_type")))
    if make is None:
        return False
    config = copy.deepcopy(settings.config)
    config.rope_parameters = dict(rule)
    try:
        speeds, _ = make(config, torch.device("cpu"), seq_len=len(rotation.first_SC))
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    speeds = speeds.double().to(rotation.first_SC.device)
    return speeds.shape == rotation.speeds_C.shape and rotation.keeps(speeds)


def _find_power(rotation: Rotation) -> tuple[float, float] | None:
    """Base and factor of frequencies that are powers of a base, divided by one factor."""
    speeds = rotation.speeds_C
    if bool((speeds <= 0).any()):
        return None
    factor = 1 / float(speeds[0])
    factor = round(factor, 3) if abs(factor - round(factor, 3)) < 1e-4 * factor else factor
    places = torch.arange(len(rotation.first_SC), dtype=torch.float64, device=speeds.device)[:, None]
    base = find_base(speeds * factor, rotation.rotated_SC if factor == 1 else places * speeds * factor)
    return None if base is None else (base, factor)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 and value == int(value) else f"{value:.4g}"


def _list(speeds_C: Tensor) -> str:
    return ", ".join(f"{float(speed):.3g}" for speed in speeds_C[:5]) + (" ..." if len(speeds_C) > 5 else "")


def _describe_length(ours: Rotation, scalings: tuple[float, ...]) -> list[str] | None:
    length = float(ours.amplitude_C.mean())
    if float((ours.amplitude_C - length).abs().max()) > 2e-3 * length:
        return None
    if abs(length - 1) < 1e-4:
        return []
    for scaling in scalings:
        if abs(length * scaling - 1) < 1e-3:
            return [f"lacks the attention factor {scaling:.4g} (YaRN's temperature)"]
    return [f"makes what it rotates {length:.4g} times as long"]
