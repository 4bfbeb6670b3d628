"""The spectra that change a frequency by how often its pair comes round within the trained length: YaRN and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import compute_frequencies
from clockhands.schemes.rotary.spectrum import Device, Frequencies, Length, Spectrum


@dataclass(frozen=True, repr=False)
class YaRN(Spectrum):
    """YaRN (Peng et al. 2023, section 3): hands that come round often within L are kept, the slow ones interpolated.

    Between the two kinds of hands runs a ramp. ``mscale`` and ``mscale_all_dim`` are DeepSeek's. With
    g(m) = 0.1·m·ln(s) + 1, cosines and sines are multiplied by g(mscale)/g(mscale_all_dim), and all logits, of channels
    that do not rotate too, by g(mscale_all_dim)².

    Args:
        beta_fast: hands that come round this often within L are kept.
        beta_slow: hands that come round less often than this within L are interpolated.
        ramp: what runs linearly between the two: the ``channel`` c (the authors' code and transformers) or the
            ``rotations`` L/λ_c (the paper, equations 18 and 19).
        truncate: whether the bounds of the ramp in c are rounded outwards to whole channels (code).
        mscale: DeepSeek's slope of the factor of cosines and sines, in place of ``attention_factor``.
        mscale_all_dim: DeepSeek's slope of the factor of all logits.
    """

    factor: float
    original_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: Literal["channel", "rotations"] = "channel"
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return frequencies that are kept, divided by ``factor``, or between the two along the ramp: [F]."""
        omega_F = compute_frequencies(channels, base, device=device)
        if self.ramp == "channel":
            low, high = self.bounds(channels, base)
            channel_F = torch.arange(channels // 2, dtype=omega_F.dtype, device=omega_F.device)
            # 0 left of the ramp, 1 right of it; 0.001 keeps a ramp of no width from 0/0.
            interpolated_F = ((channel_F - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        else:
            # How often each pair comes round within the trained length, L/λ.
            rotations_F = self.original_length * omega_F / (2 * math.pi)
            kept_F = (rotations_F - self.beta_slow) / (self.beta_fast - self.beta_slow)
            interpolated_F = 1 - kept_F.clamp(0, 1)
        # θ/s for the slow hands, θ for the fast ones (equation 23).
        return omega_F / self.factor * interpolated_F + omega_F * (1 - interpolated_F)

    def bounds(self, channels: int, base: float) -> tuple[float, float]:
        """Return where pairs come round ``beta_fast`` and ``beta_slow`` times within L, as numbers c of pairs."""

        def find_pair(rotations: float) -> float:
            # L·θ_c/2π = rotations, solved for c in θ_c = base^(-2c/r).
            return channels * math.log(self.original_length / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = find_pair(self.beta_fast), find_pair(self.beta_slow)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        return max(low, 0.0), min(high, channels - 1.0)

    def amplitude(self) -> float:
        """Return ``attention_factor``, or 0.1·ln(factor) + 1 (equation 22), or g(mscale)/g(mscale_all_dim)."""
        if self.attention_factor is not None:
            return self.attention_factor
        return self._compute_factor(1.0 if self.mscale is None else self.mscale) / self._compute_factor(
            self.mscale_all_dim or 0.0
        )

    def logit_factor(self) -> float:
        """Return g(mscale_all_dim)², by which DeepSeek multiplies 1/√d_head; 1 without that option."""
        return self._compute_factor(self.mscale_all_dim or 0.0) ** 2

    def _compute_factor(self, slope: float) -> float:
        """Return g(slope) of DeepSeek, 0.1·slope·ln(factor) + 1."""
        return 0.1 * slope * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``yarn``. Raises ConfigError for the ramp of the paper."""
        if self.ramp != "channel":
            raise ConfigError(["transformers has YaRN with ramp 'channel' only, and ramp is 'rotations'"], "the scheme")
        return {
            "rope_type": "yarn",
            "rope_theta": base,
            "factor": self.factor,
            "original_max_position_embeddings": self.original_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "truncate": self.truncate,
            **(
                {"attention_factor": self.amplitude()}
                if self.mscale is None
                else {"mscale": self.mscale, "mscale_all_dim": self.mscale_all_dim}
            ),
        }

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; ``beta_fast`` must exceed ``beta_slow``."""
        wrong = super().faults(channels)
        if (self.mscale is None) != (self.mscale_all_dim is None):
            wrong.append(
                f"rope.mscale is {self.mscale} and mscale_all_dim is {self.mscale_all_dim}; DeepSeek's formula needs "
                f"both, or leave both out"
            )
        if self.mscale is not None and self.attention_factor is not None:
            wrong.append(
                "rope.attention_factor and rope.mscale both set the factor of cosines and sines; leave one out"
            )
        if self.beta_fast <= self.beta_slow:
            wrong.append(f"rope.beta_fast is {self.beta_fast}, but must be above beta_slow, which is {self.beta_slow}")
        return wrong


@dataclass(frozen=True, repr=False)
class LongRoPE(Spectrum):
    """LongRoPE (Ding et al. 2024, section 3): θ_c/λ_c with searched λ; one set up to L, another for longer rows.

    Args:
        short_factor: divisors λ_c of θ_c up to the trained length, one a pair.
        long_factor: the same for longer rows.
        unscaled_first: how many first positions rotate as they were trained (the paper's n̂; transformers has 0).
    """

    factor: float
    original_length: int
    short_factor: Sequence[float] = ()
    long_factor: Sequence[float] = ()
    unscaled_first: int = 0
    attention_factor: float | None = None
    depends_on_length = True

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies divided by the factors for each row's length: [B, 1, F]; [F] without lengths."""
        omega_F = compute_frequencies(channels, base, device=length_B.device if length_B is not None else device)
        short_F = omega_F / omega_F.new_tensor(self.short_factor)
        long_F = omega_F / omega_F.new_tensor(self.long_factor)
        if length_B is None:
            return short_F
        return torch.where((length_B > self.original_length)[:, None, None], long_F, short_F)

    def amplitude(self) -> float:
        """Return ``attention_factor``, or √(1 + ln(factor)/ln(L))."""
        if self.attention_factor is not None:
            return self.attention_factor
        # √(1 + ln s/ln L): more keys flatten the softmax, and this sharpens it.
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length)) if self.factor > 1 else 1.0

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``longrope``. Raises ConfigError with ``unscaled_first``."""
        if self.unscaled_first:
            raise ConfigError(
                [f"transformers leaves no position unscaled, and {self.unscaled_first} are"], "the scheme"
            )
        return {
            "rope_type": "longrope",
            "rope_theta": base,
            "factor": self.factor,
            "original_max_position_embeddings": self.original_length,
            "short_factor": list(self.short_factor),
            "long_factor": list(self.long_factor),
            "attention_factor": self.amplitude(),
        }

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; each pair needs one factor above 0 of either kind."""
        wrong = super().faults(channels)
        for name, by in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if len(by) != channels // 2:
                wrong.append(f"rope.{name} has {len(by)} numbers, but {channels // 2} pairs rotate")
            elif min(by) <= 0:
                wrong.append(f"rope.{name} holds {min(by)}, but all must be above 0")
        return wrong


@dataclass(frozen=True, repr=False)
class Llama3(Spectrum):
    """Llama 3.1's scaling: long wavelengths by 1/s, short ones kept, a smooth passage between.

    Args:
        low_frequency_factor: wavelengths above L over this are divided by ``factor``.
        high_frequency_factor: wavelengths below L over this are kept.
    """

    original_length: int
    factor: float = 8.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return frequencies that are kept, divided by ``factor``, or between the two: [F]."""
        omega_F = compute_frequencies(channels, base, device=device)
        rotations_F = self.original_length * omega_F / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        # Where both are equal, as in Llama 4 Scout, the passage is a step.
        kept_F = ((rotations_F - low) / (high - low)).clamp(0, 1) if high > low else (rotations_F >= low).to(omega_F)
        return (1 - kept_F) * omega_F / self.factor + kept_F * omega_F

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``llama3``."""
        return {
            "rope_type": "llama3",
            "rope_theta": base,
            "factor": self.factor,
            "original_max_position_embeddings": self.original_length,
            "low_freq_factor": self.low_frequency_factor,
            "high_freq_factor": self.high_frequency_factor,
        }

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; the low factor may not be above the high one."""
        wrong = super().faults(channels)
        if self.low_frequency_factor > self.high_frequency_factor:
            wrong.append(
                f"rope.low_frequency_factor is {self.low_frequency_factor}, but must not be above "
                f"high_frequency_factor, which is {self.high_frequency_factor}"
            )
        return wrong
