"""Rotary embedding and length: bases, hands that come round, YaRN's two halves, a temperature by position."""

from __future__ import annotations

import math

import torch

from clockhands.explanation.rotation import Rotation
from clockhands.schemes.frequencies import compute_frequencies
from clockhands.studies.exact.added import Numbers

HEAD = 128


def find_bases() -> Numbers:
    """Return how many hands do not come round once, by base and length, and the least base for some lengths."""
    values: Numbers = {"hands": HEAD // 2}
    for base in (10_000, 500_000):
        wavelengths = 2 * math.pi / compute_frequencies(HEAD, float(base))
        for length in (4096, 32_768, 131_072):
            values[f"never round in {length}, base {base}"] = int((wavelengths > length).sum())
    return {**values, **{f"least base for {length}": find_least_base(length) for length in (1024, 4096)}}


def find_least_base(length: int) -> int:
    """Return the least base, to two digits, under which a key like the query is never scored below chance.

    Σ_c cos(m·θ_c) ≥ 0 for every distance m below ``length`` (Men et al. 2024, "Base of RoPE bounds context length").
    """
    distances = torch.arange(length, dtype=torch.float64)
    grid = sorted({round(digits * 10**power) for power in range(1, 7) for digits in range(10, 100)})
    for base in grid:
        if float((distances[:, None] * compute_frequencies(HEAD, float(base))).cos().sum(1).min()) >= 0:
            return base
    raise ValueError(f"no base below {grid[-1]:,} serves {length} tokens")


def measure_yarn() -> Numbers:
    """Return what YaRN changes up to the trained length, by factor: the scores by temperature, the angles by spectrum.

    The factor of all scores is (0.1 ln s + 1)²; the change of angles is over distances up to 100, in degrees, and as
    the change of Σ_c cos(m·θ_c) over the number of pairs, which is also told for all distances of the trained length.
    """
    values: Numbers = {}
    trained = 4096
    plain = torch.tensor(Rotation(HEAD, HEAD, 10_000.0).frequencies(), dtype=torch.float64)
    distances = torch.arange(trained + 1, dtype=torch.float64)[:, None]
    for factor in (4, 32):
        rotation = Rotation(HEAD, HEAD, 10_000.0, rule="yarn", factor=float(factor), original_length=trained)
        slowed = torch.tensor(rotation.frequencies(), dtype=torch.float64)
        moved = ((distances * slowed).cos() - (distances * plain).cos()).mean(1).abs()
        values[f"scores times, factor {factor}"] = (0.1 * math.log(factor) + 1) ** 2
        values[f"degrees, factor {factor}"] = math.degrees(100 * float((slowed - plain).abs().max()))
        values[f"similarity, factor {factor}"] = float(moved[:101].max())
        values[f"similarity in {trained}, factor {factor}"] = float(moved.max())
        values[f"hands kept, factor {factor}"] = int((slowed == plain).sum())
    return values


def measure_temperature() -> Numbers:
    """Return the share of attention that one key gets whose score is 10 above all others, in percent, by their number.

    e^a / (e^a + n − 1); and with all scores times log n / log 1,000, as a temperature by log position has it.
    """
    values: Numbers = {}
    for count in (1000, 100_000, 1_000_000):
        for name, factor in (("plain", 1.0), ("scaled", math.log(count) / math.log(1000))):
            values[f"{name}, {count}"] = 100 / (1 + (count - 1) * math.exp(-10 * factor))
    return values
