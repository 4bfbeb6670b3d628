"""Biases that are a function of the distance alone: one curve for each head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import nn

from clockhands.errors import PositionError
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import can_read
from clockhands.schemes.rotary.rotation import Memo
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    Scheme,
    ScoreMod,
)
from clockhands.shapes import Float, Num, Tensor

Distances = Num[Tensor, " R"]
Curves = Float[Tensor, "H R"]
"""The bias of every head at each distance."""
Curve = Callable[[Tensor], Tensor]


class DistanceBias(Scheme):
    """A bias that is a function of the distance i - j alone, one curve for each head.

    A subclass gives the curve; nothing here makes an S x T table unless somebody asks for ``bias``: ``attend`` works
    through tiles of it, and ``score_mod`` serves FlexAttention. Offsets of several coordinates are such distances too
    where ``place_on_line`` puts the tokens on a line. ``axis``: the coordinate whose distance it is; None: positions
    have one.
    """

    lean_score_mod = True
    axis: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.short_masks = Memo()
        """The bias of a short text, if it is not learned: laid out once for all layers that share its positions."""

    def compute_curve(self, distance_R: Distances) -> Curves:
        """Return the bias at each distance query position - key position: [H, R], float32.

        It is differentiable in the parameters. Raises PositionError for real-valued distances where it looks them up.
        """
        raise NotImplementedError(f"{type(self).__name__} must give its curve")

    def is_on_line(self, qpos: QueryPositions, kpos: KeyPositions) -> bool:
        """Return whether the bias at these positions is a function of one distance, so that ``place_on_line`` serves.

        Where it is not, a subclass overrides ``bias`` and ``score_mod``, and kernels that need a line do not serve.
        """
        return True

    def place_on_line(
        self, qpos: QueryPositions, kpos: KeyPositions
    ) -> tuple[Num[Tensor, "B S"], Num[Tensor, "B T"], Curve]:
        """Return queries and keys as numbers of whose difference the bias is a function, and that function.

        Raises PositionError for positions of several coordinates, unless ``axis`` chooses one or a subclass puts them
        on a line, and for positions without the coordinate ``axis``.
        """
        if self.axis is not None:
            name = type(self).__name__.lower()
            qpos, kpos = take_axis(qpos, name, self.axis), take_axis(kpos, name, self.axis)
        _check_one_coordinate(qpos, kpos)
        return qpos, kpos, self.compute_curve

    def bias(self, at: AttentionInputs) -> Bias:
        """Lay the curve out over all pairs: [B, H, S, T], or [1, H, S, T] where all rows are one expanded row."""
        q_BS, k_BT, curve = self.place_on_line(at.qpos, at.kpos)
        distance_BST = compute_distances(q_BS, k_BT)
        if not distance_BST.is_floating_point() and can_read(distance_BST):
            least, most = distance_BST.aminmax()
            low, high = int(least), int(most)
            # There are S + T - 1 distances among S·T pairs: the curve is computed once for each, and then looked up.
            if high - low < distance_BST.numel():
                curve_RH = curve(torch.arange(low, high + 1, device=distance_BST.device)).T
                return nn.functional.embedding(distance_BST - low, curve_RH).permute(0, 3, 1, 2)
        # Real-valued distances seldom occur twice, so that each has its own number.
        flat_HR = curve(distance_BST.reshape(-1))
        return flat_HR.unflatten(1, distance_BST.shape).transpose(0, 1)

    def score_mod(
        self, qpos: QueryPositions, kpos: KeyPositions, q_BHSK: Queries | None = None, k_BHTK: Keys | None = None
    ) -> ScoreMod:
        if qpos.is_floating_point() or kpos.is_floating_point():
            raise PositionError("score_mod looks distances up in a table and needs integer positions")
        q_BS, k_BT, curve = self.place_on_line(qpos, kpos)
        # The table begins at the least distance that occurs.
        low, high = int((q_BS.min() - k_BT.max()).item()), int((q_BS.max() - k_BT.min()).item())
        curve_HR = curve(torch.arange(low, high + 1, device=q_BS.device))
        return lambda score, b, h, i, j: score + curve_HR[h, q_BS[b, i] - k_BT[b, j] - low]

    @property
    def needs_gradient(self) -> bool:
        """Whether autograd is on and a parameter of the curve requires a gradient."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters())


class DistanceBiasSum(DistanceBias):
    """The sum of several biases by distance, which is one too: a window beside ALiBi.

    Its parts belong to the scheme that asks for the sum.
    """

    def __init__(self, parts: Sequence[DistanceBias]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.queries_share_bias_row = all(part.queries_share_bias_row for part in parts)

    def compute_curve(self, distance_R: Distances) -> Curves:
        curves = [cast(DistanceBias, part).compute_curve(distance_R) for part in self.parts]
        return sum(curves[1:], curves[0])


def compute_distances(qpos: QueryPositions, kpos: KeyPositions) -> Num[Tensor, "#B S T"]:
    """Return query position - key position of every pair: [B, S, T]; one row in place of B where all rows are alike.

    Raises PositionError for positions of several coordinates.
    """
    _check_one_coordinate(qpos, kpos)
    if qpos.shape[0] > 1 and qpos.stride(0) == 0 and kpos.stride(0) == 0:
        qpos, kpos = qpos[:1], kpos[:1]
    # i - j: above 0 for keys to the left.
    return qpos[:, :, None] - kpos[:, None, :]


def _check_one_coordinate(qpos: QueryPositions, kpos: KeyPositions) -> None:
    """Raise PositionError for positions of several coordinates."""
    if qpos.dim() != 2 or kpos.dim() != 2:
        flat, other = "pass pos[None] for one row", "choose a scheme for several axes, or pass one of them"
        raise PositionError(
            f"a distance needs positions of one coordinate, [B, S]; these are {list(qpos.shape)} and "
            f"{list(kpos.shape)}: {flat if 1 in (qpos.dim(), kpos.dim()) else other}"
        )
