"""Sinusoids of fixed wavelengths: every pair of channels is a hand of a clock that turns at its own speed."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import nn

from clockhands.errors import ConfigError
from clockhands.schemes.base import Declares, Positions, Scheme
from clockhands.shapes import Float, Num, Tensor

Layout = Literal["interleaved", "half"]


def frequencies(width: int, base: float, exponent: Literal["paper", "tensor2tensor"] = "paper") -> Float[Tensor, " F"]:
    """ω_c = base^(-2c/width) (paper), or base^(-c/(width/2 - 1)) (tensor2tensor), c = 0 .. width/2 - 1, in float64."""
    half = width // 2
    index_F = torch.arange(half, dtype=torch.float64)
    power_F = 2 * index_F / width if exponent == "paper" else index_F / max(half - 1, 1)
    return torch.exp(-math.log(base) * power_F)


def angles(pos: Num[Tensor, "*B"], omega_F: Float[Tensor, " F"]) -> Float[Tensor, "*B F"]:
    """pos·ω in float64: in float32 the angle is off by 2e-2 at position 1,000,000."""
    return pos.double()[..., None] * omega_F.to(pos.device, torch.float64)


@final
class Sinusoidal(Scheme):
    """Fixed sinusoids (Vaswani et al. 2017, section 3.5), and the variants that ask why they work.

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        layout: ``interleaved`` as in the paper (sin, cos, sin, ...) or ``half`` (all sines, then all cosines), which is
            a permutation of the same channels.
        exponent: ``paper`` (2c/d) or ``tensor2tensor`` (c/(d/2 - 1): the last wavelength is exactly 2π·base).
        base: the wavelengths form a geometric progression from 2π to base·2π.
        amplitude: factor of the whole encoding; norm² is amplitude²·width/2.
        learned_amplitude: make that factor a parameter.
    """

    equation = r"PE(p, 2c) = \sin(p / b^{2c/d}), \quad PE(p, 2c+1) = \cos(p / b^{2c/d})"
    source = "Vaswani et al. 2017, section 3.5"
    peers = ("positional-encodings PositionalEncoding1D", "Marian", "fairseq SinusoidalPositionalEmbedding")

    def __init__(
        self,
        width: int,
        *,
        layout: Layout = "interleaved",
        exponent: Literal["paper", "tensor2tensor"] = "paper",
        base: float = 10_000.0,
        amplitude: float = 1.0,
        learned_amplitude: bool = False,
    ) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError([f"sinusoidal needs an even width, and width is {width}"], "the scheme")
        self.layout = layout
        self.register_buffer("omega_F", frequencies(width, base, exponent), persistent=False)
        self.amplitude = nn.Parameter(torch.tensor(amplitude)) if learned_amplitude else amplitude

    @property
    def declares(self) -> Declares:
        return Declares(real_valued=True)

    def encode(self, pos_BS: Positions, layer: int = 0) -> Float[Tensor, "B S P"]:
        angle_BSF = angles(pos_BS, self.omega_F)
        sin_BSF, cos_BSF = angle_BSF.sin().float(), angle_BSF.cos().float()
        if self.layout == "half":
            pe_BSP = torch.cat([sin_BSF, cos_BSF], dim=-1)
        else:
            pe_BSP = torch.stack([sin_BSF, cos_BSF], dim=-1).flatten(-2)
        return self.amplitude * pe_BSP
