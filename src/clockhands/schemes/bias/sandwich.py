"""Sandwich: what the inner product of two sinusoidal encodings says of distance, added to the logits."""

from __future__ import annotations

from typing import final

import torch

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.distance import Curves, DistanceBias, Distances
from clockhands.schemes.scheme import Declares


@final
class Sandwich(DistanceBias):
    """Sandwich (Chi et al. 2023, section 5): Σ_c cos((i - j)·ω_c) / (8h/H), h = 1..H, ω_c = base^(-2c/d̄).

    Args:
        num_heads: H.
        size: d̄, the width of the sinusoids whose inner product this is; even. The paper sets 128.
        base: of the wavelengths.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Sandwich
        >>> Sandwich(num_heads=1, size=2).compute_curve(torch.arange(3))
        tensor([[ 0.1250,  0.0675, -0.0520]])
    """

    equation = r"\ell_{ij} \mathrel{+}= \frac{H}{8h} \sum_{c < \bar d/2} \cos((i - j)\,\omega_c)"
    source = "Chi et al. 2023, section 5"
    peers = ("attention-gym generate_sandwich_bias",)

    def __init__(self, num_heads: int, *, size: int = 128, base: Positive = 10_000.0) -> None:
        super().__init__()
        refuse(size < 2 or size % 2, f"size is {size}; the width of the sinusoids must be even and at least 2")
        self.num_heads, self.size, self.base = num_heads, size, base

    declares = Declares(translation_invariant=True, real_valued=True)

    def compute_curve(self, distance_R: Distances) -> Curves:
        device = distance_R.device
        # ω_c = base^(-2c/d̄) in float64: at a distance of 100,000 float32 loses three digits of the angle.
        hand_F = torch.arange(self.size // 2, device=device, dtype=torch.float64)
        angle_RF = distance_R.double()[:, None] * self.base ** (-2 * hand_F / self.size)
        head_H = torch.arange(1, self.num_heads + 1, device=device)
        # ⟨PE(i), PE(j)⟩ of two sinusoids is Σ cos((i - j)ω): the bias is their product, and needs no vectors.
        return (torch.cos(angle_RF).sum(-1) * self.num_heads / (8 * head_H[:, None])).float()
