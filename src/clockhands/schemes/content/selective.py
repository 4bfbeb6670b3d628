"""Selective RoPE: the angles are sums of what the tokens contribute, smoothed over the last few of them."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Count, Positive
from clockhands.schemes.content.running_sum import accumulate, read_sums
from clockhands.schemes.frequencies import compute_frequencies, take_axis
from clockhands.schemes.rotary.rotation import Rotary
from clockhands.schemes.scheme import Declares, Located, Places, QueryPositions, States
from clockhands.shapes import Float, Tensor


def convolve_causally(
    x_BHSA: Float[Tensor, "B H S A"],
    taps_HAW: Float[Tensor, "H A W"],
    pos_BHS1: Float[Tensor, "B H S 1"],
    past_BHTA: Float[Tensor, "B H T A"] | None,
    past_BHT1: Float[Tensor, "B H T 1"] | None,
) -> Float[Tensor, "B H S A"]:
    """Convolve each channel over the tokens: [B, H, S, A]; the last tap weighs the token itself.

    A tap reaches back only as long as positions grow, so that it meets neither padding nor another document.
    ``past_BHTA`` and ``past_BHT1`` are inputs and positions of the cached tokens.
    """
    if past_BHTA is not None and past_BHT1 is not None:
        x_BHSA, pos_BHS1 = torch.cat([past_BHTA, x_BHSA], 2), torch.cat([past_BHT1, pos_BHS1], 2)
    length, width = x_BHSA.shape[2], taps_HAW.shape[-1]
    out, reached = x_BHSA * taps_HAW[..., -1][:, None], torch.ones_like(pos_BHS1, dtype=torch.bool)
    # Shifted by ``back``, each token meets the one so many places before it. That one is used only if positions grow at
    # every step between the two; ``reached`` is False from the first step to padding or to another text.
    for back in range(1, min(width, length)):
        earlier_pos = F.pad(pos_BHS1, (0, 0, back, 0), value=torch.inf)[:, :, :length]
        later_pos = F.pad(pos_BHS1, (0, 0, back - 1, 0), value=torch.inf)[:, :, :length]
        reached = reached & (earlier_pos < later_pos)
        earlier = F.pad(x_BHSA, (0, 0, back, 0))[:, :, :length]
        out = out + torch.where(reached, earlier, 0.0) * taps_HAW[..., width - 1 - back][:, None]
    return out if past_BHTA is None else out[:, :, past_BHTA.shape[2] :]


@final
class SelectiveRoPE(Rotary):
    """Selective rotary position embedding (Movahedi et al. 2025, section 4; the authors' module and its defaults).

    The input, each head's share of it at length 1, goes through a low-rank map to F = d_head/2 numbers a head, a causal
    convolution of four taps and, if ``gated``, a gate σ(W x + b); their running sums times fixed temperatures
    base^(-2c/d_head) are the angles. A token's coordinates are its position (which tells documents apart), these sums,
    and the numbers before the convolution (which the next tokens need).

    Args:
        d_model: width of the layer's input.
        num_heads: H.
        head_dim: width of a head.
        rank: of the map.
        taps: width of the convolution.
        base: of the temperatures.
        gated: whether a gate for each head scales the numbers.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import SelectiveRoPE
        >>> x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
        >>> SelectiveRoPE(d_model=8, num_heads=2, head_dim=4).locate(x, pos, None).shape
        torch.Size([1, 2, 3, 7])
    """

    equation = r"\phi_c(m) = \tau_c \sum_{t \le m} g_t\,\mathrm{conv}(W \hat x)_{t,c}, \quad \tau_c = b^{-2c/d_h}"
    source = "Movahedi et al. 2025, section 4"
    per_layer = True
    memoised = False

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        head_dim: int,
        *,
        rank: Count = 16,
        taps: Count = 4,
        base: Positive = 500_000.0,
        gated: bool = False,
    ) -> None:
        super().__init__("half")
        refuse(
            head_dim % 2 or d_model % num_heads,
            f"selective-rope needs an even head_dim, and heads that divide d_model; they are {head_dim}, {num_heads} "
            f"and {d_model}",
        )
        self.num_heads, self.head_dim, self.base = num_heads, head_dim, base
        self.down = nn.Linear(d_model, rank, bias=False)
        self.up = nn.Linear(rank, num_heads * head_dim // 2, bias=False)
        self.taps_HFW = nn.Parameter(torch.empty(num_heads, head_dim // 2, taps))
        self.gate = nn.Linear(d_model, num_heads) if gated else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        # 1/√taps, as PyTorch draws a convolution whose outputs read one channel.
        nn.init.uniform_(self.taps_HFW, -(self.taps_HFW.shape[-1] ** -0.5), self.taps_HFW.shape[-1] ** -0.5)

    declares = Declares(translation_invariant=True, causal_only=True, real_valued=True)

    def locate(self, x_BSD: States, pos: QueryPositions, past_BHTA: Places | None) -> Located:
        """Return position, running sums as two parts, and the numbers before the convolution: [B, H, S, 1 + 3F]."""
        x = F.normalize(x_BSD.float().unflatten(-1, (self.num_heads, -1)), dim=-1).flatten(-2)
        step = F.linear(F.linear(x, self.down.weight.float()), self.up.weight.float())
        step_BHSF = step.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        pos_BHS1 = take_axis(pos, "selective-rope").float()[:, None, :, None].expand(-1, self.num_heads, -1, -1)
        pairs = self.head_dim // 2
        past = (None, None, None) if past_BHTA is None else past_BHTA.split([1, 2 * pairs, pairs], dim=-1)
        # The tokens before, in the cache, are read by the first taps.
        smooth_BHSF = convolve_causally(step_BHSF, self.taps_HFW.float(), pos_BHS1, past[2], past[0])
        if self.gate is not None:
            gate_BSH = torch.sigmoid(F.linear(x, self.gate.weight.float(), self.gate.bias.float()))
            smooth_BHSF = smooth_BHSF * gate_BSH.transpose(1, 2)[..., None]
        return torch.cat([pos_BHS1, accumulate(smooth_BHSF, past[1]), step_BHSF], dim=-1)

    def angles(self, pos: QueryPositions) -> Float[Tensor, "B H S F"]:
        temperature_F = compute_frequencies(self.head_dim, self.base, device=pos.device)
        return read_sums(pos[..., 1 : 1 + self.head_dim]) * temperature_F
