"""What the parts of a composition make of the logits: biases are summed, whole rows pass from part to part."""

from __future__ import annotations

from collections.abc import Sequence

from clockhands.schemes.composition_positions import PartPositions
from clockhands.schemes.scheme import KeyPositions, Positions, Scheme, ScoreMod
from clockhands.shapes import Bool, Float, Tensor

__all__ = ["chain_score_mods", "pass_logits", "sum_biases"]


def sum_biases(
    parts: Sequence[Scheme],
    positions: PartPositions,
    q_BHSK: Float[Tensor, "B H S Kr"],
    k_BHTK: Float[Tensor, "B H T Kr"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    scale: float | None,
) -> Float[Tensor, "#B #H S T"] | None:
    """Return the sum of the biases of some parts, [B, H, S, T]; None where none of them has one."""
    total = None
    for part in parts:
        if "bias" in part.active_hooks():
            qpos, kpos = positions.select(part, qpos_BS, kpos_BT)
            bias = part.bias(q_BHSK, k_BHTK, qpos, kpos, scale)
            total = bias if total is None or bias is None else total + bias
    return total


def pass_logits(
    parts: Sequence[Scheme],
    positions: PartPositions,
    logits_BHST: Float[Tensor, "B H S T"],
    mask_BHST: Bool[Tensor, "#B #H S T"],
    q_BHSK: Float[Tensor, "B H S Kr"],
    k_BHTK: Float[Tensor, "B H T Kr"],
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    scale: float | None,
) -> Float[Tensor, "B H S T"]:
    """Return what the parts that read whole rows make of the logits, one after the other.

    They see what windows hide as masked, and it stays hidden whatever they make of it.
    """
    readers = [part for part in parts if "logits" in part.active_hooks()]
    if not readers:
        return logits_BHST
    windows = [part for part in parts if part.masks]
    hidden = sum_biases(windows, positions, q_BHSK, k_BHTK, qpos_BS, kpos_BT, scale)
    mask, logits = mask_BHST if hidden is None else mask_BHST & (hidden == 0), logits_BHST
    for part in readers:
        qpos, kpos = positions.select(part, qpos_BS, kpos_BT)
        logits = part.logits(logits, mask, q_BHSK, k_BHTK, qpos, kpos, scale)
    return logits if hidden is None else logits + hidden


def chain_score_mods(
    parts: Sequence[Scheme],
    positions: PartPositions,
    qpos_BS: Positions,
    kpos_BT: KeyPositions,
    q_BHSK: Float[Tensor, "B H S Kr"] | None,
    k_BHTK: Float[Tensor, "B H T Kr"] | None,
) -> ScoreMod:
    """Return the ``score_mod`` of all parts that have a bias as one. Raises PositionError as they do."""
    changes = []
    for part in parts:
        if "bias" in part.active_hooks():
            qpos, kpos = positions.select(part, qpos_BS, kpos_BT)
            changes.append(part.score_mod(qpos, kpos, q_BHSK, k_BHTK))

    def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for change_by_part in changes:
            score = change_by_part(score, b, h, i, j)
        return score

    return change
