"""Compare how the queries or keys of two models rotate: in words, and by the maps that undo the difference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clockhands.checking.fitting.rotation import Rotation, fit_rotation
from clockhands.checking.fitting.rotation_words import Settings, describe_rotation, find_offset


@dataclass(frozen=True)
class RotationDifference:
    """How queries or keys differ: in words, what undoes it, and by how many positions they are ahead."""

    words: list[str]
    undo: Tensor
    ahead: float


def compare_rotations(mine_NSK: Tensor, wanted_NSK: Tensor, settings: Settings) -> RotationDifference | None:
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
    return RotationDifference(words, undo[..., order.argsort()], ahead)


def _compare_reordered(
    ours: Rotation, theirs: Rotation, order: Tensor, settings: Settings
) -> RotationDifference | None:
    words = describe_rotation(ours, theirs, settings)
    if words is None:
        return None
    undo = theirs.matrices() @ torch.linalg.inv(ours.matrices())[:, order]
    return RotationDifference(["rotates queries and keys whose channels stand in another order", *words], undo, 0.0)


def find_order(mine_NK: Tensor, wanted_NK: Tensor) -> Tensor | None:
    """Return the channels of ours in the order of the reference's: of a model whose weights are laid out otherwise."""
    gaps = (mine_NK[:, :, None] - wanted_NK[:, None, :]).abs().amax(0)
    order = gaps.argmin(0)
    exact = float(gaps.amin(0).max()) < 1e-4 * float(wanted_NK.abs().max())
    return order if exact and len(set(order.tolist())) == len(order) else None


def _move_back(ours: Rotation, ahead: float, theirs: Rotation) -> Rotation:
    back = ahead * theirs.speeds_C
    return replace(ours, first_SC=ours.first_SC - back, second_SC=ours.second_SC - back) if ahead else ours
