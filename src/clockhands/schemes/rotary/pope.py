"""PoPE: contents give the lengths of the hands, positions alone give their angles."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import nn

from clockhands.options import Positive
from clockhands.schemes.frequencies import choose_working_dtype, compute_cos_sin, compute_frequencies, take_axis
from clockhands.schemes.rotary.rotation import CosSin, Memo, add_head_axis
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme
from clockhands.shapes import Float, Num, Tensor


@final
class PoPE(Scheme):
    """Polar coordinate embedding (Gopalakrishnan et al. 2025, equation 6): Σ_c σ⁺(q_c) σ⁺(k_c) cos((j-i)θ_c + δ_c).

    σ⁺ is the softplus; every channel, not every pair, is a hand: the width of q and k doubles, and the logits keep the
    scale of the width before (trap 41).

    Args:
        num_heads: every head learns phases of its own.
        head_dim: width of a head, the number of hands.
        base: θ_c = base^(-c/d), c = 0 .. d - 1 (the paper prints the exponent without its minus).
        start: where the learned phases δ, clamped to [-2π, 0], begin: ``zero`` (extrapolates better, says the paper) or
            ``uniform`` over the range.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import PoPE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> PoPE(num_heads=2, head_dim=8).rotate(q, q, pos, pos)[0].shape
        torch.Size([1, 2, 3, 16])
    """

    equation = (
        r"\ell_{ij} = \tfrac{1}{\sqrt d} \sum_{c=1}^{d} \sigma^+(q_c)\,\sigma^+(k_c) \cos((j-i)\theta_c + \delta_c)"
    )
    source = "Gopalakrishnan et al. 2025 (2509.10534), equations 5 and 6"
    rotates_by_head = True
    widening = 2
    peers = ("x-transformers PolarEmbedding", "lucidrains/PoPE-pytorch")
    per_layer = True

    def __init__(
        self, num_heads: int, head_dim: int, *, base: Positive = 10_000.0, start: Literal["zero", "uniform"] = "zero"
    ) -> None:
        super().__init__()
        self.head_dim, self.base, self.start = head_dim, base, start
        self.delta_HK = nn.Parameter(torch.empty(num_heads, head_dim))
        self._memo = Memo()
        self.reset_parameters()

    declares = Declares(translation_invariant=True, real_valued=True)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        """Turn channels into polar coordinates, which doubles the width: [B, H, S, 2K] and [B, H, T, 2K]."""
        dtype = choose_working_dtype(q_BHSK.dtype)
        cos, sin = self._memo(kpos, (dtype,), self._compute_cos_sin)
        delta_HK = self.delta_HK.to(dtype).clamp(-2 * math.pi, 0)[:, None]
        # cos(θ + δ) and sin(θ + δ) by the addition theorem; δ turns the keys alone.
        shifted = (cos * delta_HK.cos() - sin * delta_HK.sin(), sin * delta_HK.cos() + cos * delta_HK.sin())
        return (
            _polar(q_BHSK, *self._memo(qpos, (dtype,), self._compute_cos_sin)),
            _polar(k_BHTK, *shifted),
        )

    def _compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of each channel's angle, without δ: [B, 1, S, K]."""
        own = take_axis(pos, "pope")
        # base^(-c/d): every channel is a hand, so that there are as many as in a head of 2d channels.
        omega_K = compute_frequencies(2 * self.head_dim, self.base, device=own.device)
        return add_head_axis(*compute_cos_sin(own, omega_K, dtype))

    def reset_parameters(self) -> None:
        if self.start == "zero":
            self.delta_HK.zero_()
        else:
            nn.init.uniform_(self.delta_HK, -2 * math.pi, 0)


def _polar(x_BHSK: Tensor, cos_BHSK: Tensor, sin_BHSK: Tensor) -> Float[Tensor, "B H S K2"]:
    # The length of a channel is its content, above 0; its angle is the position alone.
    length_BHSK = nn.functional.softplus(x_BHSK.to(cos_BHSK.dtype))
    return torch.cat([length_BHSK * cos_BHSK, length_BHSK * sin_BHSK], dim=-1).to(x_BHSK.dtype)
