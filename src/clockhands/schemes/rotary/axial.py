"""Rotary embedding of several coordinates: each axis rotates its own pairs."""

from __future__ import annotations

from typing import final

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import (
    check_above_zero,
    check_axes,
    compute_cos_sin,
    compute_frequencies,
    take_shared_row,
)
from clockhands.schemes.rotary.base import CosSin, Rotary, add_head_axis
from clockhands.schemes.rotary.rotation import Layout
from clockhands.schemes.scheme import Declares
from clockhands.shapes import Num, Tensor

__all__ = ["Axial"]


@final
class Axial(Rotary):
    """Axial RoPE (Heo et al. 2024, section 3.1): the pairs are split over the axes, each with its whole spectrum.

    Args:
        head_dim: width of a head; divisible by 2·axes.
        axes: coordinates of a position.
        base: θ_c = base^(-2c/(d/A)) on every axis (100 for grids of patches).
        layout: pairs ``half`` or ``interleaved``, as in ``rope``.
        unit: radians by which a position of 1 rotates the fastest pair (DINOv3: 2π, coordinates in [-1, 1]).

    Example:
        >>> import torch
        >>> from clockhands.schemes import Axial
        >>> q, pos = torch.ones(1, 1, 2, 4), torch.tensor([[[0, 0], [0, 1]]])
        >>> Axial(head_dim=4).rotate(q, q, pos, pos)[0][0, 0]
        tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
                [ 1.0000,  1.0000, -0.3012,  1.3818]])
    """

    equation = r"\theta(p) = [p_1 \theta_1, \dots, p_1 \theta_{d/2A}, p_2 \theta_1, \dots], \quad \theta_c = b^{-2cA/d}"
    source = "Heo et al. 2024 (RoPE-ViT), section 3.1"
    peers = ("rotary-embedding-torch get_axial_freqs", "timm RotaryEmbeddingCat", "transformers DINOv3")
    models = ("DINOv3", "Pixtral")

    def __init__(
        self, head_dim: int, *, axes: int = 2, base: float = 100.0, layout: Layout = "interleaved", unit: float = 1.0
    ) -> None:
        super().__init__(layout)
        if axes < 1 or head_dim % (2 * axes):
            raise ConfigError(
                [f"axial shares pairs of channels out: head_dim {head_dim} is no multiple of 2 x {axes} axes"],
                "the scheme",
            )
        self.head_dim, self.axes, self.base, self.unit = head_dim, axes, check_above_zero("axial.base", base), unit

    @property
    def declares(self) -> Declares:
        """The promises of this instance: only differences matter; real-valued positions of ``axes`` coordinates."""
        return Declares(translation_invariant=True, real_valued=True, axes=self.axes)

    def compute_cos_sin(self, pos: Num[Tensor, "B ..."], dtype: torch.dtype) -> CosSin:
        """Return cosine and sine of every pair's angle, [#B, #H, S, F], from angles in float64.

        Raises PositionError for positions with another number of coordinates.
        """
        own = take_shared_row(check_axes(pos, self.axes, "axial"))
        omega_F = compute_frequencies(self.head_dim // self.axes, self.base, device=own.device) * self.unit
        waves = [compute_cos_sin(own[..., axis], omega_F, dtype) for axis in range(self.axes)]
        return add_head_axis(torch.cat([cos for cos, _ in waves], -1), torch.cat([sin for _, sin in waves], -1))
