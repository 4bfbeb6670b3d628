"""A window: keys that are too far away are masked."""

from __future__ import annotations

import math
from functools import reduce
from operator import and_
from typing import Any, final

import torch

from clockhands.options import FromZero
from clockhands.schemes.distance import Curves, DistanceBias, Distances, compute_distances
from clockhands.schemes.frequencies import pair_coordinates
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    Declares,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    ScoreMod,
)
from clockhands.shapes import Bool, Float, Num, Tensor


@final
class Window(DistanceBias):
    """Sliding window attention (Beltagy et al. 2020, section 3.1) without any other position: 0 inside, -∞ outside.

    While a model generates, layers that have it keep only the keys that it can still show.

    Of positions of several coordinates it shows the keys that are inside along every one: the neighbours of a cell of a
    grid (Ramachandran et al. 2019), fewer at its border, where Hassani et al. (2023) move the window inwards. Beside a
    causal mask ``right`` matters there, since a cell further right may come earlier in the row. Two windows with
    ``axis`` 0 and 1 show a rectangle.

    Args:
        num_heads: H.
        left: how many tokens to the left may be attended to, the query's own not counted.
        right: how many to the right; None: as many as to the left.
        axis: the one coordinate that is read, counted from 0; None: every coordinate, since a window along one of
            them shows whole rows or columns. An ``axis`` behind the coordinates of the other schemes is one more, which
            the window alone reads: beside ``mrope``, positions (t, h, w, place) and ``axis`` 3 give the sliding window
            of Qwen2-VL, which counts places in the row and not coordinates.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Window
        >>> Window(num_heads=1, left=1).compute_curve(torch.arange(3))
        tensor([[0., 0., -inf]])
    """

    equation = r"\ell_{ij} \mathrel{+}= 0 \text{ if } -\mathrm{right} \le i - j \le \mathrm{left} \text{ else } -\infty"
    source = "Beltagy et al. 2020, section 3.1; on a grid, Ramachandran et al. 2019 (1906.05909), section 3.1"
    peers = ("transformers sliding_window (left = sliding_window - 1)",)
    models = ("Longformer", "Mistral", "Gemma 3", "gpt-oss", "ModernBERT", "OLMo 3")
    masks = True
    fixed_curve = True

    def __init__(
        self, num_heads: int, *, left: FromZero = 127, right: FromZero | None = None, axis: FromZero | None = None
    ) -> None:
        super().__init__()
        self.num_heads, self.axis = num_heads, axis
        self.left, self.right = left, left if right is None else right

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, real_valued=True, axes=(self.axis or 0) + 1, more_axes=True)

    def to_hf_config(self) -> dict[str, Any] | None:
        """Return ``sliding_window``, as in Mistral, which counts the query's own token; None with ``axis``."""
        return {"sliding_window": self.left + 1} if self.axis is None else None

    def compute_curve(self, distance_R: Distances) -> Curves:
        return _mask(self._is_inside(distance_R)).expand(self.num_heads, -1)

    def is_on_line(self, qpos: QueryPositions, kpos: KeyPositions) -> bool:
        return self.axis is not None or not qpos.dim() == kpos.dim() == 3

    def bias(self, at: AttentionInputs) -> Bias:
        if self.is_on_line(at.qpos, at.kpos):
            return super().bias(at)
        distances = (compute_distances(q_BS, k_BT) for q_BS, k_BT in pair_coordinates(at.qpos, at.kpos, "window"))
        return _mask(reduce(and_, map(self._is_inside, distances)))[:, None]

    def score_mod(
        self, qpos: QueryPositions, kpos: KeyPositions, q_BHSK: Queries | None = None, k_BHTK: Keys | None = None
    ) -> ScoreMod:
        if self.is_on_line(qpos, kpos):
            return super().score_mod(qpos, kpos, q_BHSK, k_BHTK)
        coordinates, inside = pair_coordinates(qpos, kpos, "window"), self._is_inside
        return lambda score, b, h, i, j: torch.where(
            reduce(and_, [inside(q_BS[b, i] - k_BT[b, j]) for q_BS, k_BT in coordinates]), score, -math.inf
        )

    def _is_inside(self, distance: Num[Tensor, "*any"]) -> Bool[Tensor, "*any"]:
        # A distance i - j above 0 is a key to the left.
        return (distance <= self.left) & (distance >= -self.right)


def _mask(inside: Bool[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return 0 inside and -∞ outside, in float32."""
    return torch.zeros(inside.shape, device=inside.device).masked_fill(~inside, -math.inf)
