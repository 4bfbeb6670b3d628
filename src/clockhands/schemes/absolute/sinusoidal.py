"""Sinusoids of fixed wavelengths: every pair of channels is a hand of a clock that turns at its own speed."""

from __future__ import annotations

import math
from typing import Literal, final

import numpy as np
import torch
from torch import nn

from clockhands.errors import ConfigError
from clockhands.options import Seed
from clockhands.schemes.frequencies import (
    ChannelLayout,
    Exponent,
    compute_cos_sin,
    compute_frequencies,
    compute_sin_cos_pairs,
    drop_axis,
    lay_out_channels,
    take_shared_row,
)
from clockhands.schemes.scheme import Declares, Positions, Scheme
from clockhands.shapes import Float, Tensor

__all__ = ["Sinusoidal"]


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
        amplitude: factor of the whole encoding; norm² is amplitude²·width/2.
        learned_amplitude: make that factor a parameter.

    Raises ConfigError for an odd width (unless ``waves`` is one of the two), and for options out of range.

    Example:
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
        layout: ChannelLayout = "interleaved",
        exponent: Exponent = "paper",
        base: float = 10_000.0,
        wavelength: float | None = None,
        waves: Literal["both", "sine", "cosine"] = "both",
        random_phases: bool = False,
        seed: Seed = 0,
        amplitude: float = 1.0,
        learned_amplitude: bool = False,
    ) -> None:
        super().__init__()
        _check(width, base, wavelength, waves)
        self.width, self.layout, self.exponent, self.base = width, layout, exponent, base
        self.wavelength, self.waves, self.random_phases, self.seed = wavelength, waves, random_phases, seed
        self._amplitude = amplitude
        self.amplitude = nn.Parameter(torch.tensor(float(amplitude))) if learned_amplitude else amplitude

    @property
    def declares(self) -> Declares:
        """The promises of sinusoids: real-valued positions, of any size."""
        return Declares(real_valued=True)

    def frequencies(self, device: torch.device | str | None = None) -> Float[Tensor, " F"]:
        """Return the radians per position of each pair (of each channel, with one kind of wave): [F], in float64."""
        count = self.width // 2 if self.waves == "both" else self.width
        omega_F = compute_frequencies(2 * count, self.base, self.exponent, device)
        return omega_F if self.wavelength is None else torch.full_like(omega_F, 2 * math.pi / self.wavelength)

    def encode(self, pos_BS: Positions, layer: int = 0) -> Float[Tensor, "B S P"]:
        """Return the sinusoids of each position, with angles in float64 and rounded once: [B, S, P].

        Raises PositionError for positions of several coordinates.
        """
        pos = take_shared_row(drop_axis(pos_BS, "sinusoidal"))
        omega_F = self.frequencies(pos.device)
        if self.waves == "both" and self.layout == "interleaved":
            pe_BSP = compute_sin_cos_pairs(pos, omega_F).flatten(-2)
        else:
            pe_BSP = self._channels(*compute_cos_sin(pos, omega_F)[::-1])
        if self.random_phases:
            cos_BSF, sin_BSF = compute_cos_sin(pos, omega_F)
            phase_P = np.random.RandomState(self.seed).uniform(0, 2 * math.pi, self.width)
            cos_P, sin_P = (
                torch.as_tensor(f(phase_P), dtype=torch.float32, device=pos.device) for f in (np.cos, np.sin)
            )
            pe_BSP = pe_BSP * cos_P + self._channels(cos_BSF, -sin_BSF) * sin_P
        if isinstance(self.amplitude, nn.Parameter) or self.amplitude != 1.0:
            pe_BSP = self.amplitude * pe_BSP
        return pe_BSP.expand(pos_BS.shape[0], -1, -1)

    def _channels(self, sine_BSF: Float[Tensor, "B S F"], cosine_BSF: Float[Tensor, "B S F"]) -> Float[Tensor, "B S P"]:
        """Lay the values out over the channels."""
        if self.waves != "both":
            return sine_BSF if self.waves == "sine" else cosine_BSF
        return lay_out_channels(sine_BSF, cosine_BSF, self.layout)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set a learned amplitude back to ``amplitude``."""
        if isinstance(self.amplitude, nn.Parameter):
            self.amplitude.fill_(self._amplitude)


def _check(width: int, base: float, wavelength: float | None, waves: str) -> None:
    wrong = []
    if width % 2 and waves == "both":
        wrong.append(f"sinusoidal pairs its channels and needs an even width; width is {width}")
    if not base > 0:
        wrong.append(f"sinusoidal.base is {base}, but must be above 0")
    if wavelength is not None and wavelength <= 0:
        wrong.append(f"sinusoidal.wavelength is {wavelength}, but must be above 0 tokens")
    if wrong:
        raise ConfigError(wrong, "the scheme")
