"""Rotary embedding and length: bases, hands that come round, YaRN's two halves, a temperature by position."""

from __future__ import annotations

import math

import torch

from clockhands.explanation.rotation import Rotation
from clockhands.schemes.frequencies import compute_frequencies
from exact.added import Numbers

HEAD = 128
LENGTHS = (1024, 4096, 8192, 32_768, 131_072, 1_048_576)
"""Of which the least base is told."""
GRID = 1.005
"""From one base that is tried to the next."""


def find_bases() -> Numbers:
    """Return how many hands do not come round once, by base and length, and the bases that serve ``LENGTHS``."""
    values: Numbers = {"hands": HEAD // 2}
    for base in (10_000, 500_000):
        wavelengths = 2 * math.pi / compute_frequencies(HEAD, float(base))
        for length in (4096, 32_768, 131_072):
            values[f"never round in {length}, base {base}"] = int((wavelengths > length).sum())
    least = 10
    for length in LENGTHS:
        least = find_least_base(length, least)
        values[f"least base for {length}"] = least
        if length < LENGTHS[-1]:  # of a million tokens the grid takes a minute
            values[f"all serve from, {length}"] = find_safe_base(length, least)
    for base in (29_000, 30_000):
        values[f"lowest in 4096, base {base}"] = find_lowest_sum(4096, base) / (HEAD // 2)
    return values


def find_least_base(length: int, above: int = 10) -> int:
    """Return the least base, to two digits, under which a key like the query is never scored below chance.

    Σ_c cos(m·θ_c) ≥ 0 for every distance m below ``length`` (Men et al. 2024, "Base of RoPE bounds context length").
    ``above``: the least base for a shorter length, below which none serves.
    """
    grid = sorted({round(digits * 10**power) for power in range(1, 9) for digits in range(10, 100)})
    parts = length // 16, length // 4, length  # most bases that fail do so early
    for base in (base for base in grid if base >= above):
        if all(find_lowest_sum(part, base) >= 0 for part in parts):
            return base
    raise ValueError(f"no base up to {grid[-1]:,} serves {length} tokens")


def find_safe_base(length: int, least: int) -> int:
    """Return the base, rounded up to two digits, from which on all bases serve: of a grid up to ten times ``least``.

    Above the least base that serves some fail, because the lowest sum rises with the base only in the long run.
    """
    grid = [least * GRID**step for step in range(math.ceil(math.log(10, GRID)))]
    last = max((base for base in grid if find_lowest_sum(length, base) < 0), default=least)
    digits = 10 ** (math.floor(math.log10(last)) - 1)
    return math.ceil(last / digits) * digits


def find_lowest_sum(length: int, base: float) -> float:
    """Return the lowest Σ_c cos(m·θ_c) over the distances m from 0 to ``length`` - 1.

    A million distances are one product of matrices, by cos(a + b) = cos a cos b - sin a sin b.
    """
    frequencies_F = compute_frequencies(HEAD, float(base))
    side = math.isqrt(length - 1) + 1
    steps_N1 = torch.arange(side, dtype=torch.float64)[:, None]
    far_NF, near_NF = side * steps_N1 * frequencies_F, steps_N1 * frequencies_F
    sums_NN = torch.cat([far_NF.cos(), far_NF.sin()], 1) @ torch.cat([near_NF.cos(), -near_NF.sin()], 1).T
    return float(sums_NN.flatten()[:length].min())


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
