"""Inkling's relative logits: each token mixes a few profiles of distance for itself."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.options import Count
from clockhands.schemes.frequencies import take_axis
from clockhands.schemes.position_checks import check_integer
from clockhands.schemes.scheme import (
    AttentionInputs,
    Bias,
    Declares,
    KeyPositions,
    Keys,
    Located,
    Places,
    Queries,
    QueryPositions,
    Rotated,
    Scheme,
    States,
)
from clockhands.shapes import Float, Tensor


@final
class Inkling(Scheme):
    """Relative logits over a learned basis of distances (Inkling, 2026): (W_r x_i)·P[:, i - j], nothing beyond it.

    Unscaled, and zero for distances outside 0 .. extent - 1. A token's coordinates are its position and its mixture
    W_r x; only the mixtures of queries are used. With ``sharpen_after``, n0, all logits are multiplied
    by τ = 1 + α·ln(max((p + 1)/n0, 1)), as in its global layers.

    Args:
        d_model: width of the layer's input.
        num_heads: H.
        rank: numbers in a mixture.
        extent: distances in the basis.
        sharpen_after: n0, tokens after which τ begins to rise; None: τ is 1.
        slope: α.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Inkling
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> Inkling(d_model=8, num_heads=2, rank=4).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 5])
    """

    equation = r"\ell_{ij} \mathrel{+}= (W_r x_i)_h \cdot P_{:, i-j} \text{ for } 0 \le i - j < E"
    source = "Inkling (2026), transformers"
    peers = ("transformers InklingRelativeLogits", "x-transformers attn_use_rel_proj_pos_bias")
    models = ("Inkling",)
    per_layer = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        rank: Count = 16,
        extent: Count = 1024,
        sharpen_after: Count | None = None,
        slope: float = 0.1,
    ) -> None:
        super().__init__()
        self.num_heads, self.extent, self.sharpen_after, self.slope = num_heads, extent, sharpen_after, slope
        self.mixture_GD = nn.Parameter(torch.empty(num_heads * rank, d_model))
        self.basis_GR = nn.Parameter(torch.empty(rank, extent))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=self.sharpen_after is None)

    def active_hooks(self) -> frozenset[str]:
        return type(self).hooks() - (frozenset({"rotate"}) if self.sharpen_after is None else frozenset())

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        if self.sharpen_after is None:
            return q_BHSK, k_BHTK
        return (q_BHSK.float() * self._tau(qpos)).to(q_BHSK.dtype), k_BHTK

    def _tau(self, place_BHSA: Tensor) -> Float[Tensor, "B H S 1"]:
        # (p + 1)/n0, and 1 up to n0 tokens, whose logarithm is 0.
        count_BHS1 = (place_BHSA[..., :1] + 1) / (self.sharpen_after or 1)
        return 1 + self.slope * torch.log(count_BHS1.clamp(min=1.0))

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        """Return position and mixture of each token, in float32: [B, H, S, 1 + rank]."""
        check_integer(pos, "inkling")
        # In float32, since coordinates are cached in it.
        mixture_BSG = F.linear(x_BSD.float(), self.mixture_GD.float())
        mixture_BHSG = mixture_BSG.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        pos_BHS1 = take_axis(pos, "inkling").float()[:, None, :, None].expand(*mixture_BHSG.shape[:3], 1)
        return torch.cat([pos_BHS1, mixture_BHSG], dim=-1)

    def bias(self, at: AttentionInputs) -> Bias:
        """Return each query's mixture of the basis at the distance of each key: [B, H, S, T]; 0 outside the basis."""
        # The logit of each distance for each query; pairs look it up by their distance.
        profile_BHSR = at.qpos[..., 1:] @ self.basis_GR.float()
        distance_BHST = (at.qpos[..., :1] - at.kpos[..., :1].transpose(-1, -2)).long()
        inside_BHST = (distance_BHST >= 0) & (distance_BHST < self.extent)
        bias_BHST = profile_BHSR.gather(-1, distance_BHST.clamp(0, self.extent - 1)).where(inside_BHST, 0.0)
        # τ multiplies all of a logit: q·k through the query, and the bias here.
        return bias_BHST if self.sharpen_after is None else bias_BHST * self._tau(at.qpos)
