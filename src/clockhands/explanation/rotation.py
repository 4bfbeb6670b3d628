"""How a kind of layer rotates queries and keys: the settings, and the angles that they mean, in float64.

Plain Python on purpose: a configuration is explained without torch. ``clockhands.schemes.rotary`` computes the same
frequencies on tensors, and a test compares the two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from clockhands.errors import CheckpointError

Pairing = Literal["halves", "interleaved"]
Rule = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"]


MOST_CHANNELS = 1 << 16


@dataclass(frozen=True)
class Rotation:
    """What one kind of layer rotates, and by which angles.

    ``head_dim``: channels of a head of queries and keys, or of the slice that rotates where it is separate (MLA).
    ``channels``: how many of them rotate. ``base``: θ of the frequencies base^(-2c/channels). ``rule``: how these are
    changed for longer texts, by ``factor`` and what follows. ``extrapolation``: by what YaRN's ramp is multiplied
    (llama.cpp). ``factors``: what each plain frequency is divided by, where a file lists them; ``long_factors``: beyond
    ``original_length``. ``amplitude``: the factor of
    cosines and sines where it is given; otherwise the rule's own. ``pairing``: channel c is paired with c + channels/2
    (halves) or 2c with 2c + 1 (interleaved). ``direction``: 1 as in the paper, -1 for the opposite sense. ``origin``:
    field -> where its value was found.
    """

    head_dim: int
    channels: int
    base: float
    rule: Rule = "default"
    factor: float = 1.0
    original_length: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    extrapolation: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    share: float = 1.0
    amplitude: float = 1.0
    logit_factor: float = 1.0
    pairing: Pairing = "halves"
    direction: int = 1
    origin: dict[str, str] = field(default_factory=dict, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Raise CheckpointError for more channels than any head has, and for numbers that give no frequencies."""
        if not 2 <= self.channels <= MOST_CHANNELS:
            raise CheckpointError(f"{self.channels:,} channels rotate; a head has 2 to {MOST_CHANNELS:,}")
        try:
            usable = self.base > 0 and all(math.isfinite(omega) and omega >= 0 for omega in self.frequencies())
            usable &= len(self.long_factors) in (0, self.pairs) and 0 not in self.long_factors
        except (ArithmeticError, ValueError):  # a factor of 0, a base of 1 under YaRN, lists of another length
            usable = False
        if not (math.isfinite(self.logit_scale) and self.logit_scale >= 0):
            raise CheckpointError(
                f"logits get the factor {self.logit_scale:g}; a number of rule {self.rule!r} is wrong"
            )
        if not usable:
            raise CheckpointError(
                f"base {self.base:g}, rule {self.rule!r} with factor {self.factor:g} and {self.channels} channels give "
                "no frequencies; one of these numbers is wrong"
            )

    def change(self, origin: Mapping[str, str], **fields: Any) -> Rotation:
        """Return the rotation with other numbers, and with where these come from."""
        return dataclasses.replace(self, origin={**self.origin, **origin}, **fields)

    @property
    def logit_scale(self) -> float:
        """What the logits are multiplied by: the square of the amplitude, and a factor of the architecture."""
        return self.amplitude * self.amplitude * self.logit_factor

    def frequencies(self, length: int | None = None) -> list[float]:
        """Return the radians per token of each pair, for a text of ``length`` tokens where the rule depends on it."""
        plain = [self.base ** (-2 * pair / self.channels) for pair in range(self.pairs)]
        beyond = length is not None and self.original_length is not None and length > self.original_length
        by = self.long_factors if beyond and self.long_factors else self.factors
        plain = [omega / factor for omega, factor in zip(plain, by, strict=True)] if by else plain
        match self.rule:
            case "linear":
                return [omega / self.factor for omega in plain]
            case "dynamic":  # NTK: the base grows with the text
                trained = self.original_length or 1
                ratio = max(length or trained, trained) / trained
                power = self.channels / (self.channels - 2)
                base = self.base * (self.factor * ratio - (self.factor - 1)) ** power
                return [base ** (-2 * pair / self.channels) for pair in range(self.pairs)]
            case "yarn":
                return self._yarn(plain)
            case "llama3":
                return [self._llama3(omega) for omega in plain]
            case "proportional":
                kept = int(self.share * self.channels // 2)
                return [omega / self.factor if pair < kept else 0.0 for pair, omega in enumerate(plain)]
        return plain

    @property
    def pairs(self) -> int:
        """How many pairs of channels rotate; an odd channel is paired with one that no frequency has."""
        return (self.channels + (self.rule != "proportional")) // 2

    def _yarn(self, plain: list[float]) -> list[float]:
        """Keep the fast frequencies, divide the slow ones, and pass between them along a line (YaRN, section 3.2).

        The ramp lies between the pairs that come round ``beta_fast`` and ``beta_slow`` times in the original length.
        """
        length = self.original_length or 1
        low, high = (
            self.channels * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(self.base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0.0), min(high, self.channels - 1.0)
        high = high + 0.001 if low == high else high
        angles = []
        for pair, omega in enumerate(plain):
            kept = self.extrapolation * (1 - min(max((pair - low) / (high - low), 0.0), 1.0))
            angles.append(omega / self.factor * (1 - kept) + omega * kept)
        return angles

    def _llama3(self, omega: float) -> float:
        """Keep short waves, divide long ones, and pass smoothly between (Llama 3.1)."""
        turns = (self.original_length or 1) * omega / (2 * math.pi)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        # Llama 4 Scout has both at 1: a step in place of a ramp.
        kept = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= low)
        return (1 - kept) * omega / self.factor + kept * omega


def scale_base(base: float, alpha: float, channels: int) -> float:
    """Return base · alpha^(d/(d − 2)), as HunYuan's dynamic rule. Raises CheckpointError where that is no number."""
    try:
        return base * float(alpha) ** (channels / (channels - 2))
    except (OverflowError, ZeroDivisionError) as fault:
        raise CheckpointError(f"alpha = {alpha:g} gives no base for {channels} channels") from fault


def temperature_of(factor: float, scale: float) -> float:
    """Return YaRN's amplitude, 0.1·scale·ln(factor) + 1 (Peng et al. 2023, equation 22)."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def longrope_amplitude(factor: float, length: int) -> float:
    """Return LongRoPE's amplitude, √(1 + ln factor / ln length), for an original length (Ding et al. 2024)."""
    return math.sqrt(1 + math.log(factor) / math.log(max(length, 2))) if factor > 1 else 1.0
