"""RoPE-Mixed: hands that turn along learned directions of the plane."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Positive
from clockhands.schemes.frequencies import check_axes, choose_angle_dtype
from clockhands.schemes.rotary.rotation import Layout, Rotary
from clockhands.schemes.scheme import Declares, QueryPositions
from clockhands.shapes import Float, Tensor


@final
class Mixed(Rotary):
    """RoPE-Mixed (Heo et al. 2024, section 3.2): angle_c = p_x·ω_cx + p_y·ω_cy, with ω learned for each head and layer.

    Axial RoPE cannot see diagonals: each of its hands follows one axis.

    Args:
        num_heads: every head learns its own frequencies.
        head_dim: width of a head; divisible by 4.
        base: at the start the vectors ω_c have the lengths base^(-4c/d), two of each: one along a direction that is
            random in every head, and one at right angles to it.
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Mixed
        >>> q, pos = torch.randn(1, 2, 3, 8), torch.tensor([[[0, 0], [0, 1], [1, 0]]])
        >>> Mixed(num_heads=2, head_dim=8).rotate(q, q, pos, pos)[0].shape
        torch.Size([1, 2, 3, 8])
    """

    equation = r"\theta_c(p) = p_x \omega_c^x + p_y \omega_c^y"
    source = "Heo et al. 2024 (RoPE-ViT), section 3.2"
    peers = ("naver-ai/rope-vit", "timm RotaryEmbeddingMixed")
    per_layer = True
    memoised = False
    rotates_by_head = True

    def __init__(self, num_heads: int, head_dim: int, *, base: Positive = 10.0, layout: Layout = "interleaved") -> None:
        super().__init__(layout)
        refuse(head_dim % 4, f"mixed needs head_dim divisible by 4; it is {head_dim}")
        self.base = base
        self.omega_HAF = nn.Parameter(torch.empty(num_heads, 2, head_dim // 2))
        self.reset_parameters()

    declares = Declares(translation_invariant=True, real_valued=True, axes=2)

    def angles(self, pos: QueryPositions) -> Float[Tensor, "B H S F"]:
        own, dtype = check_axes(pos, 2, "mixed"), choose_angle_dtype(pos.device)
        return (own[:, None] if own.dim() == 3 else own).to(dtype) @ self.omega_HAF.to(dtype)

    def reset_parameters(self) -> None:
        """Draw one random direction for each head; the frequencies lie along it and at right angles to it."""
        heads, _, pairs = self.omega_HAF.shape
        # base^(-4c/d), c = 0 .. d/4 - 1; there are d/2 pairs.
        length_F = self.base ** (-2 * torch.arange(pairs // 2, device=self.omega_HAF.device) / pairs)
        # Two vectors at right angles, so that no direction of the image is blind at the start.
        direction_H1 = torch.rand(heads, 1, device=self.omega_HAF.device) * 2 * math.pi
        for axis, wave in enumerate((torch.cos, torch.sin)):
            both = [length_F * wave(direction_H1 + quarter) for quarter in (0.0, math.pi / 2)]
            self.omega_HAF[:, axis] = torch.cat(both, dim=-1)
