"""The request that every kernel is asked to serve: everything that one attention computes on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch

from clockhands.attention.line import Line, find_line
from clockhands.schemes.distance import Curve, DistanceBias
from clockhands.schemes.scheme import KeyPositions, Positions, Scheme
from clockhands.shapes import Bool, Float, Tensor

__all__ = ["LOW_PRECISION", "AttentionRequest", "Mask"]

Mask = Bool[Tensor, "#B #H #S T"]
"""True where a query may attend to a key. Sizes of 1 stand for all rows, heads or queries."""

LOW_PRECISION = (torch.bfloat16, torch.float16)
"""Types of 16 bits, in which a bias and a softmax would be too coarse."""


@dataclass(frozen=True)
class AttentionRequest:
    """Queries, keys and values of one attention, where they stand, and who may attend to whom.

    ``q_BHSK`` and ``k_BHTK`` have been rotated, and ``v_BHTK`` where the scheme rotates values. ``mask_BHST`` is None
    where every query may attend to every key; ``causal`` adds the mask of the last S of T tokens: query s attends to
    keys up to T - S + s. ``scale`` multiplies q·k; ``dropout`` is the rate on the weights; ``hooks`` are those that the
    scheme needs under its options. ``sink_H`` are the logits of sinks, in float32 at least: one more key of each head,
    whose value is 0. The scheme itself has none then.
    """

    scheme: Scheme
    q_BHSK: Float[Tensor, "B H S Kr"]
    k_BHTK: Float[Tensor, "B H T Kr"]
    v_BHTK: Float[Tensor, "B H T Kv"]
    qpos_BS: Positions
    kpos_BT: KeyPositions
    mask_BHST: Mask | None
    causal: bool
    scale: float
    dropout: float
    hooks: frozenset[str]
    sink_H: Float[Tensor, " H"] | None = None

    @property
    def num_queries(self) -> int:
        """The number of queries, S."""
        return self.q_BHSK.shape[2]

    @property
    def num_keys(self) -> int:
        """The number of keys, T."""
        return self.k_BHTK.shape[2]

    @property
    def low_precision(self) -> bool:
        """Whether queries are in bfloat16 or float16."""
        return self.q_BHSK.dtype in LOW_PRECISION

    def compute_bias(self) -> Float[Tensor, "#B #H S T"] | None:
        """Compute the scheme's whole bias, [B, H, S, T] or sizes of 1 for what is the same; None if it has none."""
        return self.scheme.bias(self.q_BHSK, self.k_BHTK, self.qpos_BS, self.kpos_BT, self.scale)

    def compute_mask(self) -> Bool[Tensor, "#B #H S T"]:
        """Join ``mask_BHST`` and the causal mask to one of all queries and keys: [B, H, S, T], sizes of 1 allowed."""
        mask, device = self.mask_BHST, self.q_BHSK.device
        if self.causal:
            lower = torch.ones(self.num_queries, self.num_keys, dtype=torch.bool, device=device)
            lower = lower.tril(self.num_keys - self.num_queries)[None, None]
            mask = lower if mask is None else mask & lower
        if mask is None:
            mask = torch.ones(1, 1, self.num_queries, self.num_keys, dtype=torch.bool, device=device)
        return mask.expand(-1, -1, self.num_queries, -1)

    # Cached, since a kernel reads them to decide whether it serves, and again to compute. The compiler cannot trace a
    # cached property, so a kernel that reads one serves no request while a model is compiled.

    @cached_property
    def line(self) -> Line | None:
        """How the tokens stand on a line, or None if they do not; only with a ``DistanceBias``."""
        if not cast(DistanceBias, self.scheme).is_on_line(self.qpos_BS, self.kpos_BT):
            return None
        return find_line(*self._whole_positions_and_curve[:2])

    @property
    def first_distance(self) -> int:
        """How far the first query stands from the first key, at whole positions; only where ``line`` is not None."""
        q_BS, k_BT, _ = self._whole_positions_and_curve
        return int(q_BS[0, 0] - k_BT[0, 0])

    @cached_property
    def curve_HN(self) -> Float[Tensor, "H N"]:
        """The bias at every distance that occurs, smallest first; only where ``line`` is not None."""
        q_BS, k_BT, curve = self._whole_positions_and_curve
        low, high = int(q_BS[0, 0] - k_BT[0, -1]), int(q_BS[0, -1] - k_BT[0, 0])
        return curve(torch.arange(low, high + 1, device=q_BS.device))

    @cached_property
    def middle_row_BHT(self) -> Float[Tensor, "#B H T"]:
        """The bias of a query at the middle key, which stands for all rows; only with a bias in ``hooks``."""
        axis, middle = (2 if self.kpos_BT.dim() == 4 else 1), self.num_keys // 2
        q_BH1K, place = self.q_BHSK[:, :, :1], self.kpos_BT.narrow(axis, middle, 1)
        bias_BH1T = cast(Tensor, self.scheme.bias(q_BH1K, self.k_BHTK, place, self.kpos_BT, self.scale))
        return bias_BH1T[:, :, 0]

    @cached_property
    def _whole_positions_and_curve(self) -> tuple[Tensor, Tensor, Curve]:
        """Whole positions of queries and of keys on a line, and the bias as a function of their distance."""
        return cast(DistanceBias, self.scheme).place_on_line(self.qpos_BS, self.kpos_BT)
