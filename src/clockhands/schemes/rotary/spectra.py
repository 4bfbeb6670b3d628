"""Spectra of the rotary embedding: how its frequencies are changed so that longer texts fit.

Each is a frozen dataclass whose fields are its options. ``frequencies`` takes the number of channels that rotate and
the base, and, where ``depends_on_length``, the length of each row; all else follows from the fields. ``to_hf`` gives
the ``rope_parameters`` of transformers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import choose_angle_dtype, compute_frequencies
from clockhands.shapes import Float, Int, Num, Tensor

__all__ = [
    "SPECTRA",
    "Device",
    "Dynamic",
    "Frequencies",
    "Hope",
    "Length",
    "Linear",
    "Llama3",
    "LongRope",
    "Ntk",
    "Proportional",
    "Spectrum",
    "Yarn",
    "make_spectrum",
]

Device = torch.device | str | None
Length = Num[Tensor, " B"] | Int[Tensor, " B"] | None
Frequencies = Float[Tensor, " F"] | Float[Tensor, "B 1 F"]


@dataclass(frozen=True)
class Spectrum:
    """The plain spectrum, θ_c = base^(-2c/r)."""

    depends_on_length = False

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the radians per position of each pair, in float64: [F].

        The shape is [B, 1, F] where rows of different lengths differ.
        """
        return compute_frequencies(channels, base, device=device)

    def amplitude(self) -> float:
        """Return the factor of cosines and sines; the logits gain its square."""
        return 1.0

    def logit_factor(self) -> float:
        """Return the factor of all logits, of channels that do not rotate too."""
        return 1.0

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of transformers, without ``partial_rotary_factor``."""
        return {"rope_type": "default", "rope_theta": base}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options, one sentence each; empty if nothing is."""
        known = dataclasses.asdict(self)
        return [
            f"rope.{name} is {known[name]}, but must be above 0"
            for name in ("factor", "original_length", "attention_factor")
            if known.get(name) is not None and known[name] <= 0
        ]


@dataclass(frozen=True)
class Linear(Spectrum):
    """Position interpolation (Chen et al. 2023, equation 4): θ/s."""

    factor: float

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return all frequencies divided by ``factor``: [F]."""
        return compute_frequencies(channels, base, device=device) / self.factor

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``linear``."""
        return {"rope_type": "linear", "rope_theta": base, "factor": self.factor}


@dataclass(frozen=True)
class Ntk(Spectrum):
    """NTK-aware scaling (bloc97 2023): base·s^(r/(r-2)) keeps the fastest hand and slows the slowest s times."""

    factor: float

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies of the larger base: [F]."""
        return compute_frequencies(channels, self._base(channels, base), device=device)

    def _base(self, channels: int, base: float) -> float:
        return base * self.factor ** (channels / (channels - 2))

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the default type with the larger base, which mean the same."""
        return {"rope_type": "default", "rope_theta": self._base(channels, base)}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; one pair alone has no slowest frequency."""
        return super().faults(channels) + _at_least_two_pairs(channels)


@dataclass(frozen=True)
class Dynamic(Spectrum):
    """Dynamic NTK: base·(s·n/L - (s - 1))^(r/(r-2)) once the length n exceeds the trained length L.

    n is each row's own length, so that a batch gives what its rows give alone.
    """

    factor: float
    original_length: int
    depends_on_length = True

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies of each row's own base: [B, 1, F]; the trained ones, [F], without lengths."""
        if length_B is None:
            return compute_frequencies(channels, base, device=device)
        dtype = choose_angle_dtype(length_B.device)
        ratio_B = length_B.to(dtype).clamp(min=self.original_length) / self.original_length
        base_B = base * (self.factor * ratio_B - (self.factor - 1)) ** (channels / (channels - 2))
        power_F = torch.arange(channels // 2, dtype=dtype, device=length_B.device) * (-2 / channels)
        return base_B[:, None, None] ** power_F

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``dynamic``."""
        return {"rope_type": "dynamic", "rope_theta": base, "factor": self.factor}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; one pair alone has no slowest frequency."""
        return super().faults(channels) + _at_least_two_pairs(channels)


@dataclass(frozen=True)
class Yarn(Spectrum):
    """YaRN (Peng et al. 2023, section 3): hands that come round often within L are kept, the slow ones interpolated.

    ``ramp``: between the two it runs linearly in the channel c (the authors' code and transformers) or in the number of
    rotations r = L/λ (the paper, equations 18 and 19). ``truncate``: the channel bounds are rounded outwards (code) or
    not; both bounds lie within [0, r - 1]. ``mscale`` and ``mscale_all_dim`` are DeepSeek's: with g(m) = 0.1·m·ln(s) +
    1, cosines and sines are multiplied by g(mscale)/g(mscale_all_dim), and all logits, of channels that do not rotate
    too, by g(mscale_all_dim)².
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
            interpolated_F = ((channel_F - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        else:
            rotations_F = self.original_length * omega_F / (2 * math.pi)
            kept_F = (rotations_F - self.beta_slow) / (self.beta_fast - self.beta_slow)
            interpolated_F = 1 - kept_F.clamp(0, 1)
        return omega_F / self.factor * interpolated_F + omega_F * (1 - interpolated_F)

    def bounds(self, channels: int, base: float) -> tuple[float, float]:
        """Return the channels whose pairs come round ``beta_fast`` and ``beta_slow`` times within L."""
        low, high = (
            channels * math.log(self.original_length / (rotations * 2 * math.pi)) / (2 * math.log(base))
            for rotations in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        return max(low, 0.0), min(high, channels - 1.0)

    def amplitude(self) -> float:
        """Return ``attention_factor``, or 0.1·ln(factor) + 1 (equation 22), or g(mscale)/g(mscale_all_dim)."""
        if self.attention_factor is not None:
            return self.attention_factor
        return self._grow(1.0 if self.mscale is None else self.mscale) / self._grow(self.mscale_all_dim or 0.0)

    def logit_factor(self) -> float:
        """Return g(mscale_all_dim)², by which DeepSeek multiplies 1/√d_head; 1 without that option."""
        return self._grow(self.mscale_all_dim or 0.0) ** 2

    def _grow(self, slope: float) -> float:
        return 0.1 * slope * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
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


@dataclass(frozen=True)
class LongRope(Spectrum):
    """LongRoPE (Ding et al. 2024, section 3): θ_c/λ_c with searched λ; one set up to L, another for longer rows.

    ``unscaled_first``: the first positions rotate as they were trained (the paper's n̂; transformers has 0).
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
        short_F, long_F = (omega_F / omega_F.new_tensor(by) for by in (self.short_factor, self.long_factor))
        if length_B is None:
            return short_F
        return torch.where((length_B > self.original_length)[:, None, None], long_F, short_F)

    def amplitude(self) -> float:
        """Return ``attention_factor``, or √(1 + ln(factor)/ln(L))."""
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length)) if self.factor > 1 else 1.0

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Llama3(Spectrum):
    """Llama 3.1's scaling: long wavelengths by 1/s, short ones kept, a smooth passage between."""

    original_length: int
    factor: float = 8.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return frequencies that are kept, divided by ``factor``, or between the two: [F]."""
        omega_F = compute_frequencies(channels, base, device=device)
        rotations_F = self.original_length * omega_F / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        kept_F = ((rotations_F - low) / (high - low)).clamp(0, 1)
        return (1 - kept_F) * omega_F / self.factor + kept_F * omega_F

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
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
        """Return what is wrong with the options; the low factor must be below the high one."""
        wrong = super().faults(channels)
        if self.low_frequency_factor >= self.high_frequency_factor:
            wrong.append(
                f"rope.low_frequency_factor is {self.low_frequency_factor}, but must be below high_frequency_factor, "
                f"which is {self.high_frequency_factor}"
            )
        return wrong


@dataclass(frozen=True)
class Proportional(Spectrum):
    """p-RoPE (Barbero et al. 2025, section 6; Gemma 4): the highest ``share`` of the frequencies turns, the rest rests.

    The grid is that of the whole width, unlike partial rotary (``fraction``), whose grid is that of what rotates.
    """

    share: float = 0.25
    factor: float = 1.0

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies, of which all but the highest ``share`` are 0: [F]."""
        omega_F = compute_frequencies(channels, base, device=device) / self.factor
        kept_F = torch.arange(channels // 2, device=omega_F.device) < int(self.share * channels // 2)
        return omega_F * kept_F

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``proportional``."""
        known = {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": self.share}
        return known if self.factor == 1.0 else {**known, "factor": self.factor}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; ``share`` lies between 0 and 1."""
        wrong = super().faults(channels)
        return wrong if 0 <= self.share <= 1 else [*wrong, f"rope.share is {self.share}, but must be between 0 and 1"]


@dataclass(frozen=True)
class Hope(Spectrum):
    """HoPE (Chen et al. 2025): high frequencies turn, and hands that do not come round within L carry no position.

    The paper keeps high-frequency components and makes the low ones independent of position; the line between them is
    drawn here at one turn within the trained length, θ_c = 2π/L.
    """

    original_length: int

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies, of which those below 2π/L are 0: [F]."""
        omega_F = compute_frequencies(channels, base, device=device)
        return omega_F * (omega_F >= 2 * math.pi / self.original_length)

    def to_hf(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``proportional`` with as many frequencies."""
        kept = int((self.frequencies(channels, base) > 0).sum())
        # A little more than the share, so that rounding down gives as many pairs.
        return {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": (2 * kept + 0.5) / channels}


SPECTRA: dict[str, type[Spectrum]] = {
    "default": Spectrum,
    "linear": Linear,
    "ntk": Ntk,
    "dynamic": Dynamic,
    "yarn": Yarn,
    "longrope": LongRope,
    "llama3": Llama3,
    "proportional": Proportional,
    "hope": Hope,
}


NEEDS = {
    "factor": "how many times longer than trained the texts are (with 1 it would be plain RoPE)",
    "original_length": "how many tokens the texts had at most on which the model was trained",
}
"""Why a spectrum has no default for an option: none is right for every model."""


def make_spectrum(name: str, channels: int, options: dict[str, Any]) -> Spectrum:
    """Make a spectrum from the options that are not None.

    Raises ConfigError for options that the spectrum does not have, and for values that it cannot take.
    """
    kind = SPECTRA[name]
    known = [field.name for field in dataclasses.fields(kind)]
    options = {key: value for key, value in options.items() if value is not None}
    strange = [key for key in options if key not in known]
    takes = ", ".join(key for key in known) or "none"
    wrong = [f"rope.{key} is no option of the spectrum {name!r}, whose options are: {takes}" for key in strange]
    needed = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
    wrong += [
        f"rope.{key} is not given, and the spectrum {name!r} needs it: {NEEDS[key]}"
        for key in needed
        if key not in options
    ]
    if wrong:
        raise ConfigError(wrong, "the scheme")
    spectrum = kind(**options)
    wrong = spectrum.faults(channels)
    if wrong:
        raise ConfigError(wrong, "the scheme")
    return spectrum


def _at_least_two_pairs(channels: int) -> list[str]:
    return [] if channels > 2 else [f"this spectrum needs at least 4 channels that rotate; {channels} do"]
