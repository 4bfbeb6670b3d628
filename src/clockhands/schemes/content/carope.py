"""CARoPE: every token decides how far its pairs are rotated."""

from __future__ import annotations

from typing import Literal, final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.errors import refuse
from clockhands.schemes.content.running_sum import accumulate, read_sums
from clockhands.schemes.rotary.rotation import Layout, Rotary
from clockhands.schemes.scheme import Declares, Located, Places, QueryPositions, States
from clockhands.shapes import Float, Tensor


@final
class CARoPE(Rotary):
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
    memoised = False

    def __init__(
        self, d_model: int, num_heads: int, head_dim: int, *, first_power: Literal[0, 1] = 1, layout: Layout = "half"
    ) -> None:
        super().__init__(layout)
        refuse(head_dim % 2, f"carope rotates pairs of channels; head_dim is {head_dim}, which is odd")
        self.first_power, self.pairs = first_power, head_dim // 2
        self.turn_HD = nn.Parameter(torch.empty(num_heads, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.turn_HD, std=0.02)

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True, axes=None)

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        """Return the angles themselves, summed in float64, as two float32 parts: [B, H, S, 2F]."""
        # Between 0 and 1, so that powers of it fall as RoPE's frequencies do.
        base_BHS = 1 / (1 + F.softplus(F.linear(x_BSD.float(), self.turn_HD.float()))).transpose(1, 2)
        power_F = torch.arange(self.first_power, self.first_power + self.pairs, device=x_BSD.device)
        return accumulate(base_BHS[..., None] ** power_F, past_BHTA)

    def angles(self, pos: QueryPositions) -> Float[Tensor, "B H S F"]:
        # φ(i) - φ(j) = Σ_{j<t<=i} f(x_t)^c: of two sums from the first token on, what lies between remains.
        return read_sums(pos)
