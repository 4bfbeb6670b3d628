"""Fourier features in linear bands: sines and cosines of evenly spaced frequencies, and the coordinates themselves."""

from __future__ import annotations

import math
from typing import final

import torch

from clockhands.errors import refuse
from clockhands.options import Count, FromTwo
from clockhands.schemes.frequencies import check_axes, choose_angle_dtype
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors


@final
class FourierBands(Scheme):
    """Perceiver's Fourier features (Jaegle et al. 2021, section 3.2): [x; sin(π f x); cos(π f x)] with x in [-1, 1] on
    each axis and f evenly spaced from 1 to half the resolution, its Nyquist frequency.

    Args:
        width: of the encoding; as many bands as fit, and the rest stays 0.
        axes: coordinates of a position.
        resolution: positions on each axis that are laid over [-1, 1]; later ones lie beyond.
        bands: f's on each axis; None: as many as fit into ``width``.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import FourierBands
        >>> FourierBands(width=3, resolution=3).encode(torch.tensor([[0, 1, 2]]))[0].round(decimals=3) + 0.0
        tensor([[-1.,  0., -1.],
                [ 0.,  0.,  1.],
                [ 1.,  0., -1.]])
    """

    equation = r"[x; \sin \pi f_c x; \cos \pi f_c x], \quad f_c = 1 + (R/2 - 1)\, c/(F - 1), \quad x = 2p/(R - 1) - 1"
    source = "Jaegle et al. 2021 (Perceiver), section 3.2"
    peers = ("transformers Perceiver generate_fourier_features",)
    models = ("Perceiver", "Perceiver IO")

    def __init__(self, width: int, *, axes: Count = 1, resolution: FromTwo = 512, bands: int | None = None) -> None:
        super().__init__()
        fit = (width // axes - 1) // 2
        self.width, self.axes, self.resolution, self.bands = width, axes, resolution, fit if bands is None else bands
        refuse(
            not 1 <= self.bands <= fit,
            f"fourier-bands.bands is {self.bands}, but {axes} axes with a coordinate and two waves a band leave room "
            f"for 1 to {fit} in width {width}",
        )

    @property
    def declares(self) -> Declares:
        return Declares(real_valued=True, axes=self.axes)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        """Return coordinates, sines and cosines, and zeros up to the width: [B, S, P], float32."""
        own_BSA = check_axes(pos, self.axes, "fourier-bands").to(choose_angle_dtype(pos.device))
        # From 0 .. resolution - 1 to -1 .. 1.
        x_BSA = own_BSA * (2 / (self.resolution - 1)) - 1
        # Bands up to the Nyquist frequency, half the resolution.
        band_F = torch.linspace(1, self.resolution / 2, self.bands, dtype=x_BSA.dtype, device=x_BSA.device)
        angle_BSG = (x_BSA[..., None] * band_F * math.pi).flatten(-2)
        # In float64 until here: an angle of resolution/2 · π is large.
        made = torch.cat([x_BSA, angle_BSG.sin(), angle_BSG.cos()], dim=-1).float()
        return torch.nn.functional.pad(made, (0, self.width - made.shape[-1]))
