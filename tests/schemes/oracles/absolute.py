"""Oracles of the schemes that enter at the token embedding."""

from __future__ import annotations

import math

import torch

from tests.schemes.oracles.registry import Case, Expected, oracle


@oracle("none")
def no_position(case: Case) -> Expected:
    return Expected(logits_HST=case.scores())


@oracle(
    "sinusoidal",
    {"layout": "half"},
    {"exponent": "tensor2tensor", "layout": "half"},
    {"base": 100.0, "amplitude": 0.3},
    {"learned_amplitude": True, "amplitude": 2.0},
)
def sinusoidal(case: Case) -> Expected:
    """Vaswani et al. 2017, section 3.5; Tensor2Tensor ``get_timing_signal_1d`` for the other exponent."""
    d, base = case.width, case.options.get("base", 10_000.0)
    amplitude = float(case.scheme.amplitude)
    table = torch.zeros(len(case.qpos_S), d, dtype=torch.float64)
    for s, p in enumerate(case.qpos_S.tolist()):
        for c in range(d // 2):
            power = 2 * c / d if case.options.get("exponent", "paper") == "paper" else c / (d / 2 - 1)
            angle = p / base**power
            sin_at, cos_at = (c, d // 2 + c) if case.options.get("layout") == "half" else (2 * c, 2 * c + 1)
            table[s, sin_at], table[s, cos_at] = amplitude * math.sin(angle), amplitude * math.cos(angle)
    return Expected(encode_SP=table)
