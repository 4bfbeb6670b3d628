"""CARoPE: every token decides how far its pairs are rotated."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.errors import refuse
from clockhands.schemes.content.running_sum import accumulate, read_sums
from clockhands.schemes.frequencies import choose_working_dtype
from clockhands.schemes.rotary.rotation import Layout, rotate_pairs
from clockhands.schemes.scheme import Declares, KeyPositions, Keys, Places, Positions, Queries, Rotated, Scheme, States
from clockhands.shapes import Float, Tensor


@final
class CARoPE(Scheme):
    """Context-aware rotary position embedding (Veisi et al. 2025): φ_c(m) = Σ_{t<=m} f(x_t)^c with one f for each head.

    f(x) = 1/(1 + softplus(x·W)) lies between 0 and 1 and takes the place of RoPE's θ_1: pair c has its c-th power.

    Args:
        d_model: width of the layer's input.
        num_heads: H.
        head_dim: width of a head.
        first_power: the power of the first pair: 1 as the paper counts, or 0, which rotates it by one radian a token as
            in RoPE (θ_0 = 1).
        layout: pairs ``half`` (c, c + r/2) or ``interleaved`` (2c, 2c + 1).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import CARoPE
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> CARoPE(d_model=8, num_heads=2, head_dim=4).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 4])
    """

    equation = r"\phi_c(m) = \sum_{t \le m} f_h(x_t)^c, \quad f_h(x) = 1/(1 + \mathrm{softplus}(w_h \cdot x))"
    source = "Veisi et al. 2025, section 3"
    per_layer = True

    def __init__(
        self, d_model: int, num_heads: int, head_dim: int, *, first_power: int = 1, layout: Layout = "half"
    ) -> None:
        super().__init__()
        refuse(
            head_dim % 2 or first_power not in (0, 1),
            f"carope rotates pairs by powers from 0 or 1; head_dim is {head_dim}, first {first_power}",
        )
        self.layout, self.first_power, self.pairs = layout, first_power, head_dim // 2
        self.turn_HD = nn.Parameter(torch.empty(num_heads, d_model))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.normal_(self.turn_HD, std=0.02)

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True, axes=None)

    def locate(self, x_BSD: States, pos_BS: Positions, past_BHTA: Places | None) -> Float[Tensor, "B H S F2"]:
        """Return the angles themselves, summed in float64, as two float32 parts: [B, H, S, 2F]."""
        # Between 0 and 1, so that powers of it fall as RoPE's frequencies do.
        base_BHS = 1 / (1 + F.softplus(F.linear(x_BSD.float(), self.turn_HD.float()))).transpose(1, 2)
        power_F = torch.arange(self.first_power, self.first_power + self.pairs, device=x_BSD.device)
        return accumulate(base_BHS[..., None] ** power_F, past_BHTA)

    def rotate(self, q_BHSK: Queries, k_BHTK: Keys, qpos: Positions, kpos: KeyPositions) -> Rotated:
        # φ(i) - φ(j) = Σ_{j<t<=i} f(x_t)^c: of two sums from the first token on, what lies between remains.
        qangle_BHSF, kangle_BHTF = read_sums(qpos), read_sums(kpos)
        return rotate_by_angles(q_BHSK, qangle_BHSF, self.layout), rotate_by_angles(k_BHTK, kangle_BHTF, self.layout)


def rotate_by_angles(
    x_BHSK: Float[Tensor, "B H S K"], angle_BHSF: Float[Tensor, "B H S F"], layout: Layout
) -> Float[Tensor, "B H S K"]:
    """Rotate heads [B, H, S, K] by angles [B, H, S, F] that tokens gave themselves."""
    dtype = choose_working_dtype(x_BHSK.dtype)
    return rotate_pairs(x_BHSK, angle_BHSF.cos().to(dtype), angle_BHSF.sin().to(dtype), layout)
