"""The spectra of the rotary embedding as values: the base of all, and those that change all frequencies by one rule.

Each is a frozen dataclass whose fields are its options. ``frequencies`` takes the number of channels that rotate and
the base, and, where ``depends_on_length``, the length of each row; all else follows from the fields. ``to_hf_config``
gives the ``rope_parameters`` of transformers.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch

from clockhands.errors import ConfigError
from clockhands.schemes.frequencies import choose_angle_dtype, compute_frequencies
from clockhands.shapes import Float, Int, Num, Tensor

Device = torch.device | str | None
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

    depends_on_length = False
    """Whether the frequencies of a row follow from its length."""
    unscaled_first = 0
    """How many first positions rotate by the plain spectrum."""

    @classmethod
    def kinds(cls) -> dict[str, type[Spectrum]]:
        """Return every spectrum by the name that recipes have for it; ``options_of`` reads their options from here."""
        return SPECTRA

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

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
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

    def check(self, channels: int) -> Spectrum:
        """Return the spectrum itself. Raises ConfigError for options that it cannot have with so many channels."""
        if wrong := self.faults(channels):
            raise ConfigError(wrong, "the scheme")
        return self

    def __repr__(self) -> str:
        """Show the options that are not defaults: ``YaRN(factor=4.0, original_length=2048)``."""
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        own = [f"{field.name}={options[field.name]!r}" for field in dataclasses.fields(self)
               if options[field.name] != field.default]  # fmt: skip
        return f"{type(self).__name__}({', '.join(own)})"


SPECTRA: dict[str, type[Spectrum]] = {}
"""The spectra by the names that recipes have for them; ``spectra.py``, which knows all of them, fills it."""


@dataclass(frozen=True, repr=False)
class Plain(Spectrum):
    """The spectrum of the paper, θ_c = base^(-2c/r) for r channels that rotate."""


@dataclass(frozen=True, repr=False)
class Linear(Spectrum):
    """Position interpolation (Chen et al. 2023, equation 4): θ/s."""

    factor: float

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return all frequencies divided by ``factor``: [F]."""
        return compute_frequencies(channels, base, device=device) / self.factor

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``linear``."""
        return {"rope_type": "linear", "rope_theta": base, "factor": self.factor}


@dataclass(frozen=True, repr=False)
class NTK(Spectrum):
    """NTK-aware scaling (bloc97 2023): base·s^(r/(r-2)) keeps the fastest hand and slows the slowest s times."""

    factor: float

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies of the larger base: [F]."""
        return compute_frequencies(channels, self._enlarge_base(channels, base), device=device)

    def _enlarge_base(self, channels: int, base: float) -> float:
        """Return base·s^(r/(r-2))."""
        # s^(r/(r - 2)) slows the slowest pair, c = r/2 - 1, exactly s times, and the fastest not at all.
        return base * self.factor ** (channels / (channels - 2))

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the default type with the larger base, which mean the same."""
        return {"rope_type": "default", "rope_theta": self._enlarge_base(channels, base)}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; one pair alone has no slowest frequency."""
        return super().faults(channels) + _find_pair_faults(channels)


@dataclass(frozen=True, repr=False)
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
        # The base whose slowest hand is s·n/L - (s - 1) times slower, by which the text is longer.
        base_B = base * (self.factor * ratio_B - (self.factor - 1)) ** (channels / (channels - 2))
        power_F = torch.arange(channels // 2, dtype=dtype, device=length_B.device) * (-2 / channels)
        return base_B[:, None, None] ** power_F

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``dynamic``."""
        return {"rope_type": "dynamic", "rope_theta": base, "factor": self.factor}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; one pair alone has no slowest frequency."""
        return super().faults(channels) + _find_pair_faults(channels)


@dataclass(frozen=True, repr=False)
class Proportional(Spectrum):
    """p-RoPE (Barbero et al. 2025, section 6; Gemma 4): the highest ``share`` of the frequencies, the rest 0.

    The grid is that of the whole width, unlike partial rotary (``fraction``), whose grid is that of what rotates.

    Args:
        share: of the frequencies, the highest, that rotate.
    """

    share: float = 0.25
    factor: float = 1.0

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies, of which all but the highest ``share`` are 0: [F]."""
        omega_F = compute_frequencies(channels, base, device=device) / self.factor
        kept_F = torch.arange(channels // 2, device=omega_F.device) < int(self.share * channels // 2)
        return omega_F * kept_F

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``proportional``."""
        known = {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": self.share}
        return known if self.factor == 1.0 else {**known, "factor": self.factor}

    def faults(self, channels: int) -> list[str]:
        """Return what is wrong with the options; ``share`` lies between 0 and 1."""
        wrong = super().faults(channels)
        return wrong if 0 <= self.share <= 1 else [*wrong, f"rope.share is {self.share}, but must be between 0 and 1"]


@dataclass(frozen=True, repr=False)
class HoPE(Spectrum):
    """HoPE (Chen et al. 2025): pairs that do not come round within L do not rotate.

    The paper keeps high-frequency components and makes the low ones independent of position; the line between them is
    drawn here at one turn within the trained length, θ_c = 2π/L.
    """

    original_length: int

    def frequencies(self, channels: int, base: float, length_B: Length = None, device: Device = None) -> Frequencies:
        """Return the frequencies, of which those below 2π/L are 0: [F]."""
        omega_F = compute_frequencies(channels, base, device=device)
        return omega_F * (omega_F >= 2 * math.pi / self.original_length)

    def to_hf_config(self, base: float, channels: int) -> dict[str, Any]:
        """Return ``rope_parameters`` of the type ``proportional`` with as many frequencies."""
        kept = int((self.frequencies(channels, base) > 0).sum())
        # A little more than the share, so that rounding down gives as many pairs.
        return {"rope_type": "proportional", "rope_theta": base, "partial_rotary_factor": (2 * kept + 0.5) / channels}


def _find_pair_faults(channels: int) -> list[str]:
    """Return what is wrong with the number of channels where the slowest pair must be another than the fastest."""
    return [] if channels > 2 else [f"this spectrum needs at least 4 channels that rotate; {channels} do"]
