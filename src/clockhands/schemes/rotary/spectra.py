"""The spectra of the rotary embedding as values, and the names that recipes have for them.

Each is a frozen dataclass whose fields are its options. ``frequencies`` takes the number of channels that rotate and
the base, and, where ``depends_on_length``, the length of each row; all else follows from the fields.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from clockhands.errors import ConfigError, refuse
from clockhands.options import AtLeastOne, Count, Fraction, Positive, check_value
from clockhands.schemes.arguments import explain_call
from clockhands.schemes.frequencies import choose_angle_dtype, compute_frequencies
from clockhands.shapes import Float, Int, Num, Tensor

_Device = torch.device | str | None
Length = Num[Tensor, " B"] | Int[Tensor, " B"] | None
"""The length of each row; None: not known, or of no concern."""
Frequencies = Float[Tensor, " F"] | Float[Tensor, "B 1 F"]
"""Radians per position of each pair, the same for all rows or for each row its own."""


@dataclass(frozen=True, repr=False)
class Spectrum:
    """The rule that makes the frequencies θ_c of a rotation, as a value: ``RoPE(64, spectrum=YaRN(4.0, 2048))``.

    In a recipe or a configuration the options stand flat beside the name: ``spectrum = "yarn"``, ``factor = 4.0``.

    Args:
        factor: how many times longer than trained the texts are, s.
        original_length: the trained length L, in tokens. In a new training it is the length of its texts; where a run
            is opened or trained further with another spectrum, it is the run's own.
        attention_factor: of cosines and sines, so that logits gain its square; None: the spectrum's own formula.
    """

    rope_type: ClassVar[str] = "default"
    """What transformers calls it."""
    least_channels: ClassVar[int] = 2
    """So many must rotate; 4 where the slowest pair has to be another than the fastest."""
    depends_on_length = False
    """Whether the frequencies of a row follow from its length."""
    unscaled_first = 0
    """How many first positions rotate by the plain spectrum."""

    @classmethod
    def kinds(cls) -> dict[str, type[Spectrum]]:
        """Return every spectrum by the name that recipes have for it; ``options_of`` reads their options from here."""
        return SPECTRA

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: _Device = None) -> Frequencies:
        """Return the radians per position of each pair, in float64: [F].

        The shape is [B, 1, F] where rows of different lengths differ.
        """
        return self.change(compute_frequencies(channels, base, device=device), base)

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        """Return what the rule makes of the plain frequencies, θ_c = base^(-2c/r)."""
        return omega_F

    def amplitude(self) -> float:
        """Return the factor of cosines and sines; the logits gain its square."""
        return 1.0

    def logit_factor(self) -> float:
        """Return the factor of all logits, of channels that do not rotate too."""
        return 1.0

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of transformers, without ``partial_rotary_factor`` of partial rotation.

        Raises ConfigError for options that transformers does not have.
        """
        own = {key: getattr(self, name) for name, key in _HF_NAMES.items() if hasattr(self, name)}
        return {"rope_type": self.rope_type, "rope_theta": base, **own}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options, one sentence each; empty if nothing is."""
        needs = f"this spectrum needs at least {self.least_channels} channels that rotate; {channels} do"
        return [needs] if channels < self.least_channels else []

    def check(self, channels: int) -> Spectrum:
        """Return the spectrum itself. Raises ConfigError for options that it cannot have with so many channels."""
        types = typing.get_type_hints(type(self), include_extras=True)
        values = [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]
        wrong = [fault for name, value in values for fault in check_value(f"rope.{name}", value, types[name])]
        wrong = wrong or self.faults(channels)
        if wrong:
            raise ConfigError(wrong, "the scheme")
        return self

    def __repr__(self) -> str:
        """Show the options that are not defaults: ``YaRN(factor=4.0, original_length=2048)``."""
        options = [(field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)]
        own = [f"{name}={value!r}" for name, value, default in options if value != default]
        return f"{type(self).__name__}({', '.join(own)})"


@dataclass(frozen=True, repr=False)
class Plain(Spectrum):
    """The spectrum of the paper, θ_c = base^(-2c/r) for r channels that rotate."""


@dataclass(frozen=True, repr=False)
class Linear(Spectrum):
    """Position interpolation (Chen et al. 2023, equation 4): θ/s."""

    factor: Positive
    rope_type = "linear"

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        return omega_F / self.factor


@dataclass(frozen=True, repr=False)
class NTK(Spectrum):
    """NTK-aware scaling (bloc97 2023): base·s^(r/(r-2)) keeps the fastest hand and slows the slowest s times."""

    factor: Positive
    least_channels = 4

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: _Device = None) -> Frequencies:
        return compute_frequencies(channels, self._enlarge_base(channels, base), device=device)

    def _enlarge_base(self, channels: int, base: float) -> float:
        # s^(r/(r - 2)) slows the slowest pair, c = r/2 - 1, exactly s times, and the fastest not at all.
        return base * self.factor ** (channels / (channels - 2))

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": self._enlarge_base(channels, base)}


@dataclass(frozen=True, repr=False)
class Dynamic(Spectrum):
    """Dynamic NTK: base·(s·n/L - (s - 1))^(r/(r-2)) once the length n exceeds the trained length L.

    n is each row's own length, so that a batch gives what its rows give alone.
    """

    factor: Positive
    original_length: Count
    depends_on_length = True
    least_channels = 4

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: _Device = None) -> Frequencies:
        if length_B is None:
            return compute_frequencies(channels, base, device=device)
        dtype = choose_angle_dtype(length_B.device)
        # n/L, and 1 for rows within the trained length, which keep the trained base.
        ratio_B = length_B.to(dtype).clamp(min=self.original_length) / self.original_length
        # The base whose slowest hand is s·n/L - (s - 1) times slower, by which the text is longer.
        base_B = base * (self.factor * ratio_B - (self.factor - 1)) ** (channels / (channels - 2))
        power_F = torch.arange(channels // 2, dtype=dtype, device=length_B.device) * (-2 / channels)
        return base_B[:, None, None] ** power_F

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        return {"rope_type": "dynamic", "rope_theta": base, "factor": self.factor}


@dataclass(frozen=True, repr=False)
class Proportional(Spectrum):
    """p-RoPE (Barbero et al. 2025, section 6; Gemma 4): the highest ``share`` of the frequencies, the rest 0.

    The grid is that of the whole width, unlike partial rotary (``fraction``), whose grid is that of what rotates.

    Args:
        share: of the frequencies, the highest, that rotate.
    """

    share: Fraction = 0.25
    factor: Positive = 1.0

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        # As transformers rounds: down to whole pairs.
        kept_F = torch.arange(len(omega_F), device=omega_F.device) < int(self.share * len(omega_F))
        return omega_F / self.factor * kept_F

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        known = {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": self.share}
        return known if self.factor == 1.0 else {**known, "factor": self.factor}


@dataclass(frozen=True, repr=False)
class HoPE(Spectrum):
    """HoPE (Chen et al. 2025): pairs that do not come round within L do not rotate.

    The paper keeps high-frequency components and makes the low ones independent of position; the line between them is
    drawn here at one turn within the trained length, θ_c = 2π/L.
    """

    original_length: Count

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        # A pair turns L·θ radians within the trained length: at least once round where θ >= 2π/L.
        return omega_F * (omega_F >= 2 * math.pi / self.original_length)

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``proportional`` with as many frequencies."""
        kept = int((self.frequencies(channels, base) > 0).sum())
        # A little more than the share, so that rounding down gives as many pairs.
        return {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": (2 * kept + 0.5) / channels}


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

    factor: AtLeastOne
    original_length: Count
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: Literal["channel", "rotations"] = "channel"
    truncate: bool = True
    attention_factor: Positive | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    rope_type = "yarn"

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        if self.ramp == "channel":
            low, high = self.bounds(2 * len(omega_F), base)
            channel_F = torch.arange(len(omega_F), dtype=omega_F.dtype, device=omega_F.device)
            # 0 left of the ramp, 1 right of it; 0.001 keeps a ramp of no width from 0/0.
            interpolated_F = ((channel_F - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        else:
            # How often each pair comes round within the trained length, L/λ.
            rotations_F = self.original_length * omega_F / (2 * math.pi)
            # The ramp of the paper, γ(r) (equations 18 and 19): 0 at β_slow turns, 1 at β_fast.
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
        refuse(self.ramp != "channel", "transformers has YaRN with ramp 'channel' only, and ramp is 'rotations'")
        known = super().to_hf_config(base, channels)
        if self.mscale is None:
            return {**known, "attention_factor": self.amplitude()}
        return {**known, "mscale": self.mscale, "mscale_all_dim": self.mscale_all_dim}

    def faults(self, channels: int) -> list[str]:
        wrong = super().faults(channels)
        if (self.mscale is None) != (self.mscale_all_dim is None):
            wrong.append(
                f"rope.mscale is {self.mscale} and mscale_all_dim is {self.mscale_all_dim}; DeepSeek's formula needs "
                f"both, or leave both out"
            )
        if self.mscale is not None and self.attention_factor is not None:
            wrong.append("rope.attention_factor and rope.mscale both set the factor of cosines and sines; drop one")
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

    factor: Positive
    original_length: Count
    short_factor: Sequence[float] = ()
    long_factor: Sequence[float] = ()
    unscaled_first: int = 0
    attention_factor: Positive | None = None
    rope_type = "longrope"
    depends_on_length = True

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: _Device = None) -> Frequencies:
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
        refuse(self.unscaled_first, f"transformers leaves no position unscaled, and {self.unscaled_first} are")
        lists = {"short_factor": list(self.short_factor), "long_factor": list(self.long_factor)}
        return {**super().to_hf_config(base, channels), **lists, "attention_factor": self.amplitude()}

    def faults(self, channels: int) -> list[str]:
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

    original_length: Count
    factor: Positive = 8.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    rope_type = "llama3"

    def change(self, omega_F: Float[Tensor, " F"], base: float) -> Float[Tensor, " F"]:
        # L/λ, the turns within the trained length; Meta's code compares the wavelength λ with L over either factor.
        rotations_F = self.original_length * omega_F / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        # Where both are equal, as in Llama 4 Scout, the passage is a step.
        kept_F = ((rotations_F - low) / (high - low)).clamp(0, 1) if high > low else (rotations_F >= low).to(omega_F)
        return (1 - kept_F) * omega_F / self.factor + kept_F * omega_F

    def faults(self, channels: int) -> list[str]:
        wrong = super().faults(channels)
        if self.low_frequency_factor > self.high_frequency_factor:
            wrong.append(
                f"rope.low_frequency_factor is {self.low_frequency_factor}, but must not be above "
                f"high_frequency_factor, which is {self.high_frequency_factor}"
            )
        return wrong


SPECTRA: dict[str, type[Spectrum]] = {
    "default": Plain, "linear": Linear, "ntk": NTK, "dynamic": Dynamic, "yarn": YaRN, "longrope": LongRoPE,
    "llama3": Llama3, "proportional": Proportional, "hope": HoPE,
}  # fmt: skip
"""The spectra by the names that recipes have for them."""
for _kind in SPECTRA.values():
    _kind.__init__ = explain_call(_kind.__init__)  # type: ignore[method-assign]
_HF_NAMES = {
    "factor": "factor", "original_length": "original_max_position_embeddings", "beta_fast": "beta_fast",
    "beta_slow": "beta_slow", "truncate": "truncate", "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
}  # fmt: skip
"""What transformers calls the options that it has as they are."""
NEEDS = {
    "factor": "how many times longer than trained the texts are (with 1 it would be plain RoPE)",
    "original_length": "how many tokens the texts had at most on which the model was trained",
}
"""Why a spectrum has no default for an option: none is right for every model."""


def make_spectrum(name: str, channels: int | None, options: dict[str, Any]) -> Spectrum:
    """Make a spectrum from its name and the options that are not None.

    Raises ConfigError for options that the spectrum does not have, and for values that it cannot take; with
    ``channels`` None, whoever knows how many channels rotate asks for the latter (``Spectrum.faults``).
    """
    kind = SPECTRA[name]
    fields = dataclasses.fields(kind)
    known = [field.name for field in fields]
    options = {key: value for key, value in options.items() if value is not None}
    whose = f"is no option of the spectrum {name!r}, whose options are: {', '.join(known) or 'none'}"
    wrong = [f"rope.{key} {whose}" for key in options if key not in known]
    wrong += [
        f"rope.{field.name} is not given, and the spectrum {name!r} needs it: {NEEDS[field.name]}"
        for field in fields
        if field.default is dataclasses.MISSING and field.name not in options
    ]
    if wrong:
        raise ConfigError(wrong, "the scheme")
    spectrum = kind(**options)
    return spectrum if channels is None else spectrum.check(channels)
