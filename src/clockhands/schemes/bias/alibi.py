"""ALiBi: a straight penalty on distance, steeper in some heads than in others."""

from __future__ import annotations

import math
from typing import Literal, final

import torch

from clockhands.schemes.base import Declares, DistanceBias
from clockhands.shapes import Float, Num, Tensor


def alibi_slopes(num_heads: int) -> Float[Tensor, " H"]:
    """m_h = 2^(-8h/H), h = 1..H, for a power of two; otherwise the slopes of the next lower power of two, then every
    other slope of its double (Press et al. 2022, footnote on other numbers of heads; the authors' ``get_slopes``)."""

    def geometric(count: int) -> list[float]:
        return [2 ** (-8 * head / count) for head in range(1, count + 1)]

    power = 2 ** math.floor(math.log2(num_heads))
    extra = geometric(2 * power)[0::2][: num_heads - power]
    return torch.tensor(geometric(power) + extra, dtype=torch.float32)


@final
class Alibi(DistanceBias):
    """Attention with linear biases (Press et al. 2022, section 3): -m_h·(i - j), not scaled by 1/√d_head.

    Args:
        num_heads: H; any number.
        causal: whether keys to the right of the query are masked.
        form: ``causal`` (-m·(i - j)), ``symmetric`` (-m·|i - j|), or ``asymmetric`` (half of the heads look left, half
            look right: a head sees its own side with -m·|i - j| and the other not at all). Default: ``causal`` under a
            causal mask, else ``symmetric``.
    """

    equation = r"\ell_{ij} = q_i \cdot k_j / \sqrt{d_h} - m_h (i - j)"
    source = "Press et al. 2022, section 3"
    peers = ("transformers BLOOM, MPT", "x-transformers AlibiPositionalBias")

    def __init__(
        self,
        num_heads: int,
        causal: bool = True,
        *,
        form: Literal["auto", "causal", "symmetric", "asymmetric"] = "auto",
    ) -> None:
        super().__init__()
        self.form = ("causal" if causal else "symmetric") if form == "auto" else form
        self.register_buffer("slopes_H", alibi_slopes(num_heads), persistent=False)

    @property
    def declares(self) -> Declares:
        return Declares(translation_invariant=True, causal_only=self.form == "causal", real_valued=True)

    def kernel(self, distance_R: Num[Tensor, " R"]) -> Float[Tensor, "H R"]:
        distance = distance_R.float()
        if self.form != "causal":
            distance = distance.abs()
        bias_HR = -self.slopes_H.float()[:, None] * distance
        if self.form == "asymmetric":
            looks_left_H = torch.arange(len(self.slopes_H), device=bias_HR.device) % 2 == 0
            other_side_HR = torch.where(looks_left_H[:, None], distance_R < 0, distance_R > 0)
            bias_HR = bias_HR.masked_fill(other_side_HR, -math.inf)
        return bias_HR
