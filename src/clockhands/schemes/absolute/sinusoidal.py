"""Sinusoids of fixed wavelengths: every pair of channels is a hand of a clock that turns at its own speed.

The paper's lines (Vaswani et al. 2017, section 3.5) are ``encode_as_written``; ``Sinusoidal`` computes the same, and
the variants that ask why it works.
"""

from __future__ import annotations

import math
from typing import Literal, final

import numpy as np
import torch
from torch import nn

from clockhands.errors import refuse
from clockhands.options import Positive, Seed
from clockhands.schemes.frequencies import (
    Exponent,
    Layout,
    compute_cos_sin,
    compute_frequencies,
    compute_sin_cos_pairs,
    lay_out_channels,
    take_axis,
    take_shared_row,
)
from clockhands.schemes.scheme import Declares, QueryPositions, Scheme, Vectors
from clockhands.shapes import Float, Num, Tensor


def encode_as_written(pos_BS: Num[Tensor, "B S"], width: int, base: float = 10_000.0) -> Float[Tensor, "B S P"]:
    """Return the sinusoids of positions as the paper writes them: what ``Sinusoidal(width).encode`` returns.

    PE(p, 2c) = sin(p / base^(2c/width)) and PE(p, 2c + 1) = cos(the same). So the two channels of a pair are the point
    of a hand that turns by ω_c = base^(-2c/width) from one position to the next, and one rotation, the same for all
    positions, takes PE(p) to PE(p + k).
    """
    omega_F = base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    angle_BSF = pos_BS[..., None] * omega_F
    return torch.stack([angle_BSF.sin(), angle_BSF.cos()], dim=-1).flatten(-2).float()  # sin, cos, sin, cos, ...


@final
class Sinusoidal(Scheme):
    """Fixed sinusoids (Vaswani et al. 2017, section 3.5), and the variants that ask why they work.

    Args:
        width: d_model, or d_p where the encoding is concatenated.
        layout: ``interleaved`` as in the paper (sin, cos, sin, ...) or ``half`` (all sines, then all cosines), which is
            a permutation of the same channels.
        exponent: ``paper`` (2c/d) or ``tensor2tensor`` (c/(d/2 - 1): the last wavelength is exactly 2π·base).
        base: the wavelengths form a geometric progression from 2π to base·2π.
        wavelength: one wavelength, in tokens, for every pair, in place of the progression.
        waves: ``both``; or ``sine`` or ``cosine`` alone, one for each channel c at its own frequency base^(-c/d): then
            no linear map takes the encoding of t to that of t + k.
        random_phases: every channel starts at its own random angle, so that no two channels are a hand's sine and
            cosine.
        seed: of the random phases.
        amplitude: factor of the whole encoding; with both waves and no random phases norm² is amplitude²·width/2.
        learned_amplitude: make that factor a parameter.

    Raises ConfigError for an odd width (unless ``waves`` is one of the two), and for options out of range.

    Examples:
        >>> import torch
        >>> from clockhands.schemes import Sinusoidal
        >>> Sinusoidal(width=2).encode(torch.tensor([[0, 1]]))
        tensor([[[0.0000, 1.0000],
                 [0.8415, 0.5403]]])
    """

    equation = r"PE(p, 2c) = \sin(p / b^{2c/d}), \quad PE(p, 2c+1) = \cos(p / b^{2c/d})"
    source = "Vaswani et al. 2017, section 3.5"
    peers = ("positional-encodings PositionalEncoding1D", "Marian", "fairseq SinusoidalPositionalEmbedding")
    models = ("Transformer (2017)", "Marian", "M2M-100", "Whisper")

    def __init__(
        self,
        width: int,
        *,
        layout: Layout = "interleaved",
        exponent: Exponent = "paper",
        base: Positive = 10_000.0,
        wavelength: Positive | None = None,
        waves: Literal["both", "sine", "cosine"] = "both",
        random_phases: bool = False,
        seed: Seed = 0,
        amplitude: float = 1.0,
        learned_amplitude: bool = False,
    ) -> None:
        super().__init__()
        refuse(
            width % 2 and waves == "both", f"sinusoidal pairs its channels and needs an even width; width is {width}"
        )
        self.width, self.layout, self.exponent, self.base = width, layout, exponent, base
        self.wavelength, self.waves, self.random_phases, self.seed = wavelength, waves, random_phases, seed
        self.start = amplitude
        self.amplitude = nn.Parameter(torch.tensor(float(amplitude))) if learned_amplitude else amplitude

    declares = Declares(real_valued=True)

    def frequencies(self, device: torch.device | str | None = None) -> Float[Tensor, " F"]:
        """Return the radians per position of each pair (of each channel, with one kind of wave): [F], in float64."""
        # With one kind of wave each channel has a frequency of its own, base^(-c/width), so twice as many.
        count = self.width // 2 if self.waves == "both" else self.width
        omega_F = compute_frequencies(2 * count, self.base, self.exponent, device)
        return omega_F if self.wavelength is None else torch.full_like(omega_F, 2 * math.pi / self.wavelength)

    def encode(self, pos: QueryPositions, layer: int = 0) -> Vectors:
        """Return the sinusoids of each position, with angles in float64 and rounded once: [B, S, P]."""
        pos_BS = take_shared_row(take_axis(pos, "sinusoidal"))
        omega_F = self.frequencies(pos_BS.device)
        if self.waves == "both" and self.layout == "interleaved":
            pe_BSP = compute_sin_cos_pairs(pos_BS, omega_F).flatten(-2)
        else:
            cos_BSF, sin_BSF = compute_cos_sin(pos_BS, omega_F)
            pe_BSP = self._lay_out(cos_BSF, sin_BSF)
        if self.random_phases:
            # sin(θ + φ) = sin θ cos φ + cos θ sin φ, and likewise cos(θ + φ) = cos θ cos φ - sin θ sin φ.
            cos_BSF, sin_BSF = compute_cos_sin(pos_BS, omega_F)
            phase_P = np.random.RandomState(self.seed).uniform(0, 2 * math.pi, self.width)
            cos_P = torch.as_tensor(np.cos(phase_P), dtype=torch.float32, device=pos_BS.device)
            sin_P = torch.as_tensor(np.sin(phase_P), dtype=torch.float32, device=pos_BS.device)
            pe_BSP = pe_BSP * cos_P + self._lay_out(-sin_BSF, cos_BSF) * sin_P
        if isinstance(self.amplitude, nn.Parameter) or self.amplitude != 1.0:
            pe_BSP = self.amplitude * pe_BSP
        return pe_BSP.expand(pos.shape[0], -1, -1)

    def _lay_out(self, cos_BSF: Float[Tensor, "B S F"], sin_BSF: Float[Tensor, "B S F"]) -> Float[Tensor, "B S P"]:
        """Lay the values out over the channels."""
        if self.waves != "both":
            return sin_BSF if self.waves == "sine" else cos_BSF
        return lay_out_channels(cos_BSF, sin_BSF, self.layout)

    def reset_parameters(self) -> None:
        if isinstance(self.amplitude, nn.Parameter):
            self.amplitude.fill_(self.start)
