"""FoPE: every pair turns by a sum of hands, and hands that never came round in training stand still."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Count, NotNegative, Positive
from clockhands.schemes.frequencies import compute_angles, compute_frequencies, take_axis
from clockhands.schemes.rotary.rotation import CosSin, Layout, Rotary, check_pairs
from clockhands.schemes.rotary.trained_length import require_trained_length
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Num, Tensor


@final
class FoPE(Rotary):
    """Fourier position embedding (Hua et al. 2025, section 4): RoPE whose cos and sin of each pair and head are sums
    Σ_f a_f cos(p·θ_f) and Σ_f b_f sin(p·θ_f) over the frequencies that came round within the trained length.

    A pair is no longer rotated by an angle, so a common shift of positions does change the logits.

    Args:
        num_heads: every head has coefficients of its own.
        head_dim: width of a head; divisible by 4.
        base: θ_f = base^(-2f/d).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        original_length: L, the trained length; frequencies below 2π/L are left out. In a new training it is the length
            of its texts.
        std: the coefficients are the identity plus Xavier-normal noise with this gain.
        learned: train the coefficients; otherwise they stay as drawn, as in the authors' released models.
        normalise: divide the coefficients of each pair by their sum.
        rest: what the pairs without a wave do (all but d/4): ``still`` (cos 1, sin 0) or ``code`` (cos 1 and
            sin 1, as the authors' code pads both with ones).

    Examples:
        >>> import torch
        >>> from clockhands.schemes import FoPE
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[0, 1, 2]])
        >>> FoPE(num_heads=2, head_dim=8, original_length=512).rotate(q, q, pos, pos)[0].shape
        torch.Size([1, 2, 3, 8])
    """

    equation = (
        r"\cos p\theta_c \mapsto \sum_f a_{fc} \cos p\theta_f, \; \sin p\theta_c \mapsto \sum_f b_{fc} \sin p\theta_f"
    )
    source = "Hua et al. 2025 (2412.17739), section 4 and appendix code"
    peers = ("TsinghuaC3I/Fourier-Position-Embedding",)
    per_layer = True
    memoised = False
    rotates_by_head = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        base: Positive = 10_000.0,
        layout: Layout = "half",
        original_length: Count | None = None,
        std: NotNegative = 0.3,
        learned: bool = False,
        normalise: bool = True,
        rest: Literal["still", "code"] = "still",
    ) -> None:
        super().__init__(layout)
        check_pairs("fope", head_dim, "head_dim")
        self.head_dim, self.base, self.std = head_dim, base, std
        self.normalise, self.rest = normalise, rest
        self.original_length = require_trained_length("fope", original_length)
        slowest = 2 * math.pi / self.original_length
        # Frequencies that come round at least once within L: θ_f >= 2π/L.
        self.kept = sum(base ** (-2 * c / head_dim) >= slowest for c in range(head_dim // 2))
        self.waving = min(self.kept, head_dim // 4)
        refuse(
            self.waving < 1,
            f"fope keeps no frequency: none comes round within original_length, which is {self.original_length}",
        )
        shape = (num_heads, self.kept, self.waving)
        self.cos_HFG = nn.Parameter(torch.empty(shape), requires_grad=learned)
        self.sin_HFG = nn.Parameter(torch.empty(shape), requires_grad=learned)
        self.reset_parameters()

    declares = Declares(real_valued=True)

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        own = take_axis(pos, "fope")
        omega_F = compute_frequencies(self.head_dim, self.base, device=own.device)[: self.kept]
        angle = compute_angles(own[:, None] if own.dim() == 2 else own, omega_F)
        # Each pair is a sum of waves: its own and a little of the others.
        cos = (angle.cos() @ self._coefficients(self.cos_HFG, angle.dtype)).to(dtype)
        sin = (angle.sin() @ self._coefficients(self.sin_HFG, angle.dtype)).to(dtype)
        spare, rest = (0, self.head_dim // 2 - self.waving), 1.0 if self.rest == "code" else 0.0
        return nn.functional.pad(cos, spare, value=1.0), nn.functional.pad(sin, spare, value=rest)

    def _coefficients(self, by_HFG: Tensor, dtype: torch.dtype) -> Tensor:
        # Divided by their sum, the cosines of a pair add up to 1 at position 0, as one cosine does.
        by_HFG = by_HFG.to(dtype)
        return by_HFG / by_HFG.sum(-2, keepdim=True) if self.normalise else by_HFG

    def reset_parameters(self) -> None:
        """Set the coefficients to the identity plus Xavier-normal noise of gain ``std``."""
        step = math.ceil(self.kept / self.waving)
        waves = min(self.waving, math.ceil(self.kept / step))
        for parameter in (self.cos_HFG, self.sin_HFG):
            for head_FG in parameter:
                nn.init.xavier_normal_(head_FG, gain=self.std)
                # The identity, and noise around it.
                head_FG[torch.arange(waves) * step, torch.arange(waves)] += 1
