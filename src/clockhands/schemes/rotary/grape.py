"""GRAPE: a group of rotations that the model may choose, with RoPE as one of them."""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import choose_angle_dtype, choose_working_dtype, compute_frequencies, take_axis
from clockhands.schemes.rotary.rotation import rotate_pairs
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Queries, QueryPositions, Rotated, Scheme
from clockhands.shapes import Num, Tensor


@final
class GRAPE(Scheme):
    """Multiplicative GRAPE (Zhang et al. 2025, section 3): G(n) = exp(n·L) with L learned and skew-symmetric, so that
    q_i and k_j see exp((i - j)·L) and nothing else.

    ``planes``: the d_head/2 planes of RoPE (c, c + d_head/2) with learned speeds exp(s_c), which begin as RoPE's; the
    released model. ``rank-2``: one plane for each head, wherever it likes: L = a bᵀ - b aᵀ, with the closed exponential
    G(n) = I + sin(n·s)/s·L + (1 - cos(n·s))/s²·L² with s² = |a|²|b|² - (a·b)².

    Args:
        num_heads: H.
        head_dim: width of a head.
        form: ``planes`` or ``rank-2``.
        per_head: whether each head has speeds of its own (``planes``; ``rank-2`` always has).
        base: of the speeds at the start.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import GRAPE
        >>> q, pos = torch.ones(1, 1, 2, 2), torch.tensor([[0, 1]])
        >>> GRAPE(num_heads=1, head_dim=2).rotate(q, q, pos, pos)[0][0, 0].detach()
        tensor([[ 1.0000,  1.0000],
                [-0.3012,  1.3818]])
    """

    equation = r"q_n \mapsto e^{nL} q_n, \; k_n \mapsto e^{nL} k_n, \quad L^\top = -L \text{ learned}"
    source = "Zhang et al. 2025, section 3"
    peers = ("model-architectures/GRAPE (the authors' code; in no library)",)

    # Names of saved models; each form has one of them. speed_HF holds the logarithm s_c of the speeds.
    speed_HF: nn.Parameter
    span_HK2: nn.Parameter

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        form: Literal["planes", "rank-2"] = "planes",
        per_head: bool = False,
        base: Positive = 10_000.0,
    ) -> None:
        super().__init__()
        refuse(form == "planes" and head_dim % 2, f"planes pair channels; head_dim is {head_dim}, which is odd")
        self.form, self.head_dim, self.base = form, head_dim, base
        self.rotates_by_head = per_head or form == "rank-2"
        heads = num_heads if self.rotates_by_head else 1
        if form == "planes":
            self.speed_HF = nn.Parameter(torch.empty(heads, head_dim // 2))
        else:
            self.span_HK2 = nn.Parameter(torch.empty(heads, head_dim, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the speeds to RoPE's; or draw two vectors, which span one radian a token at the most."""
        if self.form == "planes":
            self.speed_HF.copy_(compute_frequencies(self.head_dim, self.base, device=self.speed_HF.device).log())
        else:
            nn.init.normal_(self.span_HK2, std=self.head_dim**-0.5)

    declares = Declares(translation_invariant=True, real_valued=True)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: QueryPositions, kpos: KeyPositions) -> Rotated:
        q_at, k_at = take_axis(qpos, "grape"), take_axis(kpos, "grape")
        act = self._planes if self.form == "planes" else self._rank_2
        return act(q_BHSK, q_at), act(k_BHTK, k_at)

    def _planes(self, x_BHSK: Tensor, pos_BS: Num[Tensor, "B S"]) -> Tensor:
        speed_HF = self.speed_HF.to(choose_angle_dtype(pos_BS.device)).exp()
        angle_BHSF = pos_BS[:, None, :, None] * speed_HF[:, None]
        dtype = choose_working_dtype(x_BHSK.dtype)
        return rotate_pairs(x_BHSK, angle_BHSF.cos().to(dtype), angle_BHSF.sin().to(dtype), "half")

    def _rank_2(self, x_BHSK: Tensor, pos_BS: Num[Tensor, "B S"]) -> Tensor:
        """Rotate heads [B, H, S, K] in the plane of two vectors by G(n), from angles in float64.

        L and L² are products with the two vectors; the matrices [K, K] are never made.
        """
        span_HK2 = self.span_HK2.to(choose_angle_dtype(pos_BS.device))
        inner_H22 = span_HK2.transpose(-1, -2) @ span_HK2
        # ω² = |a|²|b|² - (a·b)², the area of the plane that a and b span (Lagrange).
        speed_H = (inner_H22[:, 0, 0] * inner_H22[:, 1, 1] - inner_H22[:, 0, 1] ** 2).clamp(min=1e-24).sqrt()
        angle_BHS = pos_BS[:, None] * speed_H[:, None]
        swap_22 = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=span_HK2.dtype, device=span_HK2.device)
        skew_H22 = swap_22 @ inner_H22 @ swap_22
        # Rodrigues: e^{pL} = 1 + sin(pω)/ω L + (1 - cos(pω))/ω² L², with L = abᵀ - baᵀ of rank 2.
        once, twice = (torch.sin(angle_BHS) / speed_H[:, None], (1 - torch.cos(angle_BHS)) / speed_H[:, None] ** 2)
        dtype = choose_working_dtype(x_BHSK.dtype)
        # L is never made: x onto the two vectors, a 2 x 2 matrix, and back.
        onto_BHS2 = x_BHSK.to(dtype) @ span_HK2.to(dtype)
        mixed = once[..., None].to(dtype) * (onto_BHS2 @ swap_22.T.to(dtype))
        mixed = mixed + twice[..., None].to(dtype) * (onto_BHS2 @ skew_H22.transpose(-1, -2).to(dtype))
        return (x_BHSK.to(dtype) + mixed @ span_HK2.transpose(-1, -2).to(dtype)).to(x_BHSK.dtype)
